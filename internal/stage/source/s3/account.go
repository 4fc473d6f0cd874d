package s3

import (
	"bufio"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/smithy-go/logging"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// account is how requests are made: where to, and with whose keys. It does not change but
// for credentials that a provider renews; when credentials have expired another one takes its place.
type account struct {
	endpoint  endpoint
	region    string                  // of buckets whose own is not known
	provider  aws.CredentialsProvider // nil: requests are anonymous
	sources   []aws.CredentialSource  // where provider takes them from
	checksums bool                    // are asked for
	profile   string                  // "": the default one

	last atomic.Pointer[aws.Credentials] // that provider gave; nil: none yet
}

// early is how long before they expire credentials are renewed.
const early = 10 * time.Second

// current is the account, which is set up at the first request: environment and
// configuration files are read, and no request is made.
func (s *store) current(ctx context.Context) (*account, error) {
	if a := s.account.Load(); a != nil {
		return a, nil
	}
	s.setting.Lock()
	defer s.setting.Unlock()
	if a := s.account.Load(); a != nil {
		return a, nil
	}
	a, err := s.setUp(ctx)
	if err != nil {
		return nil, err
	}
	s.account.Store(a)
	s.forgetHosts()
	return a, nil
}

// renew makes the next request set up the account and its credentials again, unless that has
// been done since used was.
func (s *store) renew(used *account) { s.account.CompareAndSwap(used, nil) }

func (s *store) setUp(ctx context.Context) (*account, error) {
	// Servers of credentials are waited for for ever by a client without a limit. It is one
	// of the library's own, which adds AWS_CA_BUNDLE to no other.
	client := awshttp.NewBuildableClient().WithTimeout(s.net.Stall())
	options := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}),
		config.WithHTTPClient(client),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = client }),
		config.WithDefaultRegion("us-east-1"), // a bucket that is elsewhere says where
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = early }),
	}
	if s.storage.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(s.storage.Profile))
	}
	if s.storage.Region != "" {
		options = append(options, config.WithRegion(s.storage.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, unconfigured(ctx, err)
	}
	a := &account{region: cfg.Region, profile: s.storage.Profile}
	if a.profile == "" {
		a.profile = os.Getenv("AWS_PROFILE")
	}
	if !isRegion(a.region) {
		return nil, errs.New(errs.Config, "%s is not the name of a region", errs.Name(a.region)).
			Try("set one such as us-east-1 (dataset.storage.region, AWS_REGION or the profile)")
	}
	if a.endpoint, err = newEndpoint(s.storage.EndpointURL, cfg); err != nil {
		return nil, err
	}
	// Other stores refuse the header, or the signature with it.
	asked := os.Getenv("AWS_RESPONSE_CHECKSUM_VALIDATION")
	a.checksums = a.endpoint.isAWS() && !strings.EqualFold(asked, "when_required") || strings.EqualFold(asked, "when_supported")
	if !s.storage.Anonymous {
		a.provider = cfg.Credentials
		if p, ok := cfg.Credentials.(aws.CredentialProviderSource); ok {
			a.sources = p.ProviderSources()
		}
	}
	return a, nil
}

// credentials are what a request is signed with: the account's, renewed if they have expired.
// Whoever gives them is waited for no longer than any server that is silent; the library goes
// on asking, for all requests at once, and the next attempt may find them.
func (s *store) credentials(ctx context.Context, a *account, o object) (aws.Credentials, error) {
	if last := a.last.Load(); last != nil && !last.Expired() {
		return *last, nil
	}
	limited, cancel := context.WithTimeout(ctx, s.net.Stall())
	defer cancel()
	creds, err := a.provider.Retrieve(limited)
	var slow interface{ Timeout() bool }
	switch {
	case err == nil:
		s.had.Store(true)
		a.last.Store(&creds)
		return creds, nil
	case ctx.Err() != nil:
		return creds, ctx.Err()
	case limited.Err() != nil, errors.As(err, &slow) && slow.Timeout():
		err = &remote.Fault{
			Kind: remote.Unreachable, What: "no credentials came in time",
			Final: errs.New(errs.Unreachable, "what gives the credentials does not answer").At(at(o.name)).Because(unsaid(err)).
				Try("check %s, the variables AWS_* that name roles, tokens and endpoints of credentials, and the network to them", a.named()),
		}
		return creds, err
	}
	return creds, s.without(a, o, err)
}

// unconfigured is the error of a configuration that cannot be read.
func unconfigured(ctx context.Context, err error) error {
	var missing config.SharedConfigProfileNotExistError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &missing):
		known := profiles()
		e := errs.New(errs.Config, "there is no profile %s in the AWS configuration files", errs.Name(missing.Profile))
		switch near := errs.Nearest(missing.Profile, known); {
		case near != "":
			return e.Try("did you mean %s?", errs.Name(near))
		case len(known) > 0:
			return e.Try("the files have the profiles %s", strings.Join(known, ", "))
		}
		return e.Try("set AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE to the files that have it, or do not name a profile (dataset.storage.profile, AWS_PROFILE)")
	}
	return errs.New(errs.Config, "the AWS configuration cannot be read").Because(unsaid(err)).
		Try("check the files ~/.aws/config and ~/.aws/credentials, and the AWS_* variables")
}

// configFiles are the files that have profiles.
func configFiles() []string {
	files := []string{config.DefaultSharedConfigFilename(), config.DefaultSharedCredentialsFilename()}
	for i, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		if v := os.Getenv(name); v != "" {
			files[i] = v
		}
	}
	return files
}

// profiles are the names of all profiles that there are.
func profiles() (names []string) {
	for _, file := range configFiles() {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if !strings.HasPrefix(line, "[") || !strings.Contains(line, "]") {
				continue
			}
			name := strings.TrimSpace(line[1:strings.IndexByte(line, ']')])
			if kind, of, ok := strings.Cut(name, " "); ok {
				if kind != "profile" {
					continue // sso-session, services
				}
				name = strings.TrimSpace(of)
			}
			names = append(names, name)
		}
		_ = f.Close()
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// without is the error of credentials that cannot be had.
func (s *store) without(a *account, o object, err error) error {
	denied := errs.New(errs.Denied, "no credentials could be obtained").At(at(o.name)).Because(unsaid(err))
	named := a.named()
	if slices.Equal(a.sources, []aws.CredentialSource{aws.CredentialSourceIMDS}) { // the end of the chain
		denied.What = "there are no credentials for S3"
		_ = denied.Try("looked for, in this order: AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY; AWS_WEB_IDENTITY_TOKEN_FILE; %s in %s; "+
			"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and _FULL_URI; the role of the instance. Set one of them, or dataset.storage.anonymous for public data",
			named, strings.Join(configFiles(), " and "))
	} else {
		_ = denied.Try("%s", map[bool]string{
			true:  "sign in again: aws sso login --profile " + a.profile,
			false: "check " + named + ", and the AWS_* variables that name roles, tokens and endpoints of credentials",
		}[slices.Contains(a.sources, aws.CredentialSourceSSO) || slices.Contains(a.sources, aws.CredentialSourceSSOLegacy)])
	}
	if s.had.Load() { // they could be had before: their server may be back soon
		return &remote.Fault{Kind: remote.Unreachable, What: "the credentials could not be renewed", Cause: denied.Cause, Final: denied}
	}
	return denied
}

// named is the account's profile.
func (a *account) named() string {
	if a.profile == "" {
		return "the default profile"
	}
	return "the profile " + errs.Name(a.profile)
}

// unsaid is an error of the library in one line, without what a command printed: that has
// the keys.
func unsaid(err error) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "failed to refresh cached credentials, ")
	if before, after, ok := strings.Cut(text, "process output: "); ok {
		if at := strings.LastIndex(after, ", error: "); at >= 0 {
			return errors.New(before + "process output is not valid" + after[at:])
		}
		return errors.New(before + "process output is not valid")
	}
	return errors.New(text)
}

// who says which credentials were refused.
func (ans *answer) who() string {
	if ans.account.provider == nil {
		return "the request was anonymous"
	}
	from, rest, _ := strings.Cut(ans.creds.Source, ": ")
	for _, kind := range [...][2]string{
		{"EnvConfigCredentials", "from the environment (AWS_ACCESS_KEY_ID)"},
		{"SharedConfigCredentials", "from " + rest},
		{"ProcessProvider", "from the command credential_process"},
		{"SSOProvider", "from single sign-on"},
		{"LoginProvider", "from aws login"},
		{"WebIdentityCredentials", "of a role, for a web identity (AWS_WEB_IDENTITY_TOKEN_FILE)"},
		{"AssumeRoleProvider", "of an assumed role"},
		{"CredentialsEndpointProvider", "of the container (AWS_CONTAINER_CREDENTIALS_*)"},
		{"EC2RoleProvider", "of the instance's role"},
	} {
		if from == kind[0] {
			from = kind[1]
			break
		}
	}
	text := "the credentials used are " + from
	if p := ans.account.profile; p != "" {
		text += ", profile " + errs.Name(p)
	}
	return text + ", access key " + short(ans.creds.AccessKeyID)
}

// short is the end of a key's name, which its owner knows it by.
func short(id string) string {
	if len(id) <= 8 {
		return "****"
	}
	return "****" + id[len(id)-4:]
}
