package faults

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// entraAccount is the account of Azure's that the environment has no key of, so that
// tokens are asked for.
const entraAccount = "tokens"

// start starts the server of a store, and plants what its clients keep secret. roots are
// the certificates, in PEM, that they must trust.
func (l *Lab) start(t *testing.T, on Store) (roots [][]byte) {
	t.Helper()
	switch on {
	case S3:
		l.servers[S3] = servers.S3(t, servers.S3Options{})
		l.servers[S3].Use(t)
		// A store whose checksums are asked for, as AWS's are.
		t.Setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported")
		l.Secrets["secret key"] = l.servers[S3].Env["AWS_SECRET_ACCESS_KEY"]
		l.profiles(t)
	case Web:
		l.servers[Web] = servers.HTTP(t, l.local, servers.HTTPOptions{Index: "json"})
	case GCS:
		l.servers[GCS] = servers.GCS(t, servers.GCSOptions{})
		roots = append(roots, l.google(t))
	case Azure:
		l.servers[Azure] = servers.Azure(t, servers.AzureOptions{})
		l.servers[Azure].Use(t)
		l.sas = sas(time.Now().Add(time.Hour))
		l.Secrets["account key"] = servers.AzureKey
		q, err := url.ParseQuery(l.sas)
		stagetest.Must(t, err)
		l.Secrets["shared access signature"], l.Secrets["shared access signature of a URL"] = q.Get("sig"), url.QueryEscape(q.Get("sig"))
	case Entra:
		ca := servers.CA(t)
		l.servers[Entra] = servers.Azure(t, servers.AzureOptions{Cert: ca.Issue("127.0.0.1"), OAuth: true, Account: entraAccount})
		pem, err := os.ReadFile(ca.File)
		stagetest.Must(t, err)
		roots = append(roots, pem, l.entra(t))
	case Hub:
		l.hub = l.repository(t)
	}
	return roots
}

// paths are those of data on a store that is reached at url.
func (l *Lab) paths(on Store, url, data string) (all spec.Paths) {
	shards := func() []string {
		all, err := filepath.Glob(filepath.Join(l.local, data, "*.tar"))
		stagetest.Must(l.t, err)
		return all
	}
	switch on {
	case S3:
		return spec.Paths{"s3://" + servers.Bucket + "/" + data}
	case GCS:
		return spec.Paths{"gs://" + servers.Bucket + "/" + data}
	case Azure:
		if data != "tar" {
			return spec.Paths{"az://" + servers.Bucket + "/" + data}
		}
		for _, shard := range shards() {
			all = append(all, "az://"+servers.Bucket+"/"+data+"/"+filepath.Base(shard)+"?"+l.sas)
		}
		return all
	case Entra:
		return spec.Paths{"az://" + servers.Bucket + "/" + data}
	case Hub:
		return spec.Paths{"hf://datasets/" + repo + "/" + data}
	case Web:
		if data != "tar" {
			scheme, host, _ := strings.Cut(url, "://")
			return spec.Paths{scheme + "://user:" + l.Secrets["password"] + "@" + host + "/" + data}
		}
		for _, shard := range shards() {
			all = append(all, url+"/"+data+"/"+filepath.Base(shard)+"?X-Amz-Signature="+l.Secrets["signature"])
		}
		return all
	}
	return spec.Paths{filepath.Join(l.local, data)}
}

// reached is how a store at url is.
func reached(f Fault, url string) source.Storage {
	s := source.Storage{Profile: f.Profile, EndpointURL: url}
	switch f.On {
	case S3:
		s.Region = "us-east-1"
	case Azure:
		s.EndpointURL += "/" + servers.AzureAccount
	case Entra:
		s.EndpointURL += "/" + entraAccount
	case Web:
		s.EndpointURL, s.TokenEnv = "", tokenEnv
	}
	return s
}

// sas is an account's signature for reading and listing, made as its documentation says.
func sas(until time.Time) string {
	expiry := until.UTC().Format(time.RFC3339)
	secret, _ := base64.StdEncoding.DecodeString(servers.AzureKey)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join([]string{servers.AzureAccount, "rl", "b", "sco", "", expiry, "", "", "2021-12-02", "", ""}, "\n")))
	return url.Values{"sv": {"2021-12-02"}, "ss": {"b"}, "srt": {"sco"}, "sp": {"rl"}, "se": {expiry}, "sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))}}.Encode()
}

// stored is where the Hub's storage has a file: below its hash.
func stored(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
