package s3

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// endpoint says which host serves a bucket.
type endpoint struct {
	base       *url.URL // of a store that is named by its address; nil: AWS, by its rules
	from       string   // the setting that base was read from
	dual, fips bool     // hosts of AWS that have IPv6 too, or validated cryptography
}

// address is where requests for a bucket go to.
type address struct {
	scheme, host string
	path         string // what paths begin with, with a slash at its end
}

// newEndpoint reads what a user asked for, or else what the environment and the
// configuration files say.
func newEndpoint(asked string, cfg aws.Config) (endpoint, error) {
	var e endpoint
	for _, src := range cfg.ConfigSources {
		if p, ok := src.(interface {
			GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error)
		}); ok && !e.dual {
			v, _, _ := p.GetUseDualStackEndpoint(context.Background())
			e.dual = v == aws.DualStackEndpointStateEnabled
		}
		if p, ok := src.(interface {
			GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error)
		}); ok && !e.fips {
			v, _, _ := p.GetUseFIPSEndpoint(context.Background())
			e.fips = v == aws.FIPSEndpointStateEnabled
		}
	}
	e.from = "dataset.storage.endpoint_url"
	if asked == "" {
		asked, e.from = configured(cfg), "endpoint_url of the AWS configuration"
		for _, variable := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
			if asked != "" && os.Getenv(variable) == asked {
				e.from = variable
			}
		}
	}
	if asked == "" {
		return e, nil
	}
	u, err := url.Parse(asked)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return e, errs.New(errs.Config, "the address of the store is not valid: it must be http:// or https:// with a host, and optionally a port").
			Try("correct endpoint_url (dataset.storage, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile)")
	}
	e.base = u
	return e, nil
}

// configured is the address that the environment or the profile has for S3, or for all
// services, in the order of AWS's tools; "": none.
func configured(cfg aws.Config) string {
	all := ""
	if cfg.BaseEndpoint != nil {
		all = *cfg.BaseEndpoint
	}
	if os.Getenv("AWS_ENDPOINT_URL") != "" && os.Getenv("AWS_ENDPOINT_URL_S3") == "" {
		return all
	}
	for _, src := range cfg.ConfigSources {
		if p, ok := src.(interface {
			GetIgnoreConfiguredEndpoints(context.Context) (bool, bool, error)
		}); ok {
			if ignore, _, _ := p.GetIgnoreConfiguredEndpoints(context.Background()); ignore {
				return ""
			}
		}
	}
	for _, src := range cfg.ConfigSources {
		if p, ok := src.(interface {
			GetServiceBaseEndpoint(context.Context, string) (string, bool, error)
		}); ok {
			if u, found, _ := p.GetServiceBaseEndpoint(context.Background(), "S3"); found && u != "" {
				return u
			}
		}
	}
	return all
}

// of is the address of a bucket in a region; bucket "": of the service. The bucket is a
// part of the host's name where AWS wants that and certificates allow it, and else the
// first part of the path, which nearly every other store understands; hosted says that
// this one does not.
func (e endpoint) of(region, bucket string, hosted bool) address {
	a := address{scheme: "https", path: "/"}
	if e.base != nil {
		a.scheme, a.host, a.path = e.base.Scheme, e.base.Host, strings.TrimRight(e.base.EscapedPath(), "/")+"/"
	} else {
		a.host = "s3"
		if e.fips {
			a.host += "-fips"
		}
		if e.dual {
			a.host += ".dualstack"
		}
		a.host += "." + region + "." + suffix(region)
	}
	switch {
	case bucket == "":
	case (e.isAWS() || hosted && e.hasName()) && a.path == "/" && isLabel(bucket):
		a.host = bucket + "." + a.host
	default:
		a.path += bucket + "/"
	}
	return a
}

// isAWS says whether the store is Amazon's own.
func (e endpoint) isAWS() bool {
	if e.base == nil {
		return true
	}
	host := e.base.Hostname()
	return e.hasName() && (strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn"))
}

// hasName says whether the host of a store that is named by its address has a name, of
// which that of a bucket can be a part.
func (e endpoint) hasName() bool {
	return e.base != nil && net.ParseIP(e.base.Hostname()) == nil && strings.Contains(e.base.Hostname(), ".")
}

// suffix is the ending of the hosts of a region.
func suffix(region string) string {
	for _, p := range [...][2]string{
		{"cn-", "amazonaws.com.cn"},
		{"us-isob-", "sc2s.sgov.gov"},
		{"us-isof-", "csp.hci.ic.gov"},
		{"us-iso-", "c2s.ic.gov"},
		{"eu-isoe-", "cloud.adc-e.uk"},
		{"eusc-", "amazonaws.eu"},
	} {
		if strings.HasPrefix(region, p[0]) {
			return p[1]
		}
	}
	return "amazonaws.com"
}

// isLabel says whether a bucket may be a part of a host's name. One with dots may not: the
// certificate does not cover it.
func isLabel(bucket string) bool {
	if len(bucket) < 3 || len(bucket) > 63 || bucket[0] == '-' || bucket[len(bucket)-1] == '-' {
		return false
	}
	for i := range len(bucket) {
		if c := bucket[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isRegion says whether a word may be the name of a region. What a server names as one
// becomes a part of a host's name.
func isRegion(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 32
}
