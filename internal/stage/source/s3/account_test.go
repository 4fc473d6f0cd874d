package s3_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// keys are a real server's, which the test gives away by other means than its environment.
type keys struct{ id, secret string }

// locked is a server with one object, whose keys the environment does not have.
func locked(t *testing.T) (*servers.Server, keys) {
	t.Helper()
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	server.Put("x", []byte("x"))
	k := keys{server.Env["AWS_ACCESS_KEY_ID"], server.Env["AWS_SECRET_ACCESS_KEY"]}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"} {
		t.Setenv(name, "")
	}
	return server, k
}

// configure writes the files of AWS's configuration.
func configure(t *testing.T, conf, creds string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"AWS_CONFIG_FILE": conf, "AWS_SHARED_CREDENTIALS_FILE": creds} {
		file := filepath.Join(dir, name)
		stagetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		t.Setenv(name, file)
	}
}

// issued is what servers of credentials answer.
func (k keys) issued(token string, expires time.Time) string {
	b, _ := json.Marshal(map[string]any{
		"Version": 1, "Code": "Success", "AccessKeyId": k.id, "SecretAccessKey": k.secret, "Token": token, "SessionToken": token,
		"Expiration": expires.UTC().Format(time.RFC3339),
	})
	return string(b)
}

// gateway takes requests with temporary credentials, of which versitygw has none: it refuses
// those whose token is not the one, and signs the others anew.
func gateway(t *testing.T, server *servers.Server, k keys, refuses func(w http.ResponseWriter, r *http.Request) bool) {
	t.Helper()
	front(t, server, func(w http.ResponseWriter, r *http.Request) bool {
		if refuses(w, r) {
			return true
		}
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+k.id+"/") || !strings.Contains(r.Header.Get("Authorization"), "x-amz-security-token") {
			refuse(w, 403, "AccessDenied", "not these credentials")
			return true
		}
		r.Header.Del("X-Amz-Security-Token")
		r.Header.Del("Authorization")
		r.Header.Del("Accept-Encoding")
		signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
		r.URL.Host = r.Host
		if err := signer.SignHTTP(r.Context(), aws.Credentials{AccessKeyID: k.id, SecretAccessKey: k.secret}, r, r.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now()); err != nil {
			t.Error(err)
		}
		return false
	}, nil)
}

// answering is a server with one answer to each path.
func answering(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	return s.URL
}

// The ways in which AWS's own tools find keys, each against a server that refuses others.
func TestChain(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	for name, set := range map[string]func(t *testing.T, k keys, server *servers.Server) source.Storage{
		"profile": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			configure(t, "", fmt.Sprintf("[default]\naws_access_key_id=wrong\naws_secret_access_key=wrong\n[mine]\naws_access_key_id=%s\naws_secret_access_key=%s\n", k.id, k.secret))
			return source.Storage{Profile: "mine"}
		},
		"profile before environment": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
			configure(t, "", fmt.Sprintf("[mine]\naws_access_key_id=%s\naws_secret_access_key=%s\n", k.id, k.secret))
			return source.Storage{Profile: "mine"}
		},
		"AWS_PROFILE, endpoint_url": func(t *testing.T, k keys, server *servers.Server) source.Storage {
			t.Setenv("AWS_ENDPOINT_URL_S3", "")
			t.Setenv("AWS_PROFILE", "mine")
			configure(t, "[profile mine]\nregion=us-east-1\nendpoint_url="+server.URL+"\n", fmt.Sprintf("[mine]\naws_access_key_id=%s\naws_secret_access_key=%s\n", k.id, k.secret))
			return source.Storage{}
		},
		"services of a profile": func(t *testing.T, k keys, server *servers.Server) source.Storage {
			t.Setenv("AWS_ENDPOINT_URL_S3", "")
			configure(t, "[profile mine]\nendpoint_url=http://127.0.0.1:1\nservices=here\n[services here]\ns3 =\n  endpoint_url = "+server.URL+"\n",
				fmt.Sprintf("[mine]\naws_access_key_id=%s\naws_secret_access_key=%s\n", k.id, k.secret))
			return source.Storage{Profile: "mine"}
		},
		"credential_process": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			file := stagetest.Put(t, filepath.Join(t.TempDir(), "keys.json"), []byte(k.issued("", hour)))
			configure(t, "[profile mine]\ncredential_process = cat "+file+"\n", "")
			return source.Storage{Profile: "mine"}
		},
		"source_profile": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			t.Setenv("AWS_ENDPOINT_URL_STS", answering(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				form, _ := url.ParseQuery(string(body))
				if !strings.Contains(r.Header.Get("Authorization"), "Credential=BASEKEYBASEKEY/") || form.Get("RoleArn") != "arn:aws:iam::123456789012:role/reader" {
					w.WriteHeader(403)
					return
				}
				fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>temporary</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`,
					k.id, k.secret, hour.UTC().Format(time.RFC3339))
			}))
			configure(t, "[profile mine]\nrole_arn=arn:aws:iam::123456789012:role/reader\nsource_profile=base\n[profile base]\n", "[base]\naws_access_key_id=BASEKEYBASEKEY\naws_secret_access_key=base\n")
			return source.Storage{Profile: "mine"}
		},
		"web identity": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			t.Setenv("AWS_ENDPOINT_URL_STS", answering(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if form, _ := url.ParseQuery(string(body)); form.Get("WebIdentityToken") != "signed by the cluster" {
					w.WriteHeader(403)
					return
				}
				fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>temporary</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
					k.id, k.secret, hour.UTC().Format(time.RFC3339))
			}))
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", stagetest.Put(t, filepath.Join(t.TempDir(), "token"), []byte("signed by the cluster")))
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
			return source.Storage{}
		},
		"container": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "of the container" {
					fmt.Fprint(w, k.issued("temporary", hour))
				} else {
					w.WriteHeader(403)
				}
			})+"/role")
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "of the container")
			return source.Storage{}
		},
		"instance": func(t *testing.T, k keys, _ *servers.Server) source.Storage {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", answering(t, func(w http.ResponseWriter, r *http.Request) {
				role := "/latest/meta-data/iam/security-credentials/"
				switch {
				case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
					w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
					fmt.Fprint(w, "session")
				case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
					w.WriteHeader(401)
				case r.URL.Path == role:
					fmt.Fprint(w, "trainer")
				case r.URL.Path == role+"trainer":
					fmt.Fprint(w, k.issued("temporary", hour))
				default:
					w.WriteHeader(404)
				}
			}))
			return source.Storage{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, k := locked(t)
			storage := set(t, k, server)
			if slices.Contains([]string{"source_profile", "web identity", "container", "instance"}, name) {
				gateway(t, server, k, func(w http.ResponseWriter, r *http.Request) bool {
					wrong := r.Header.Get("X-Amz-Security-Token") != "temporary"
					if wrong {
						refuse(w, 400, "InvalidToken", "")
					}
					return wrong
				})
			}
			if got := read(t, reach(t, source.Access{Storage: storage}), "s3://data/x"); string(got) != "x" {
				t.Errorf("%q", got)
			}
		})
	}
}

// Nothing is looked for without a request.
func TestNothingIsSetUpBefore(t *testing.T) {
	server, k := locked(t)
	src := reach(t, source.Access{}) // there are no keys yet
	t.Setenv("AWS_ACCESS_KEY_ID", k.id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", k.secret)
	read(t, src, "s3://data/x")
	_ = server
}

// Anonymous requests have no signature, whatever keys there are.
func TestAnonymous(t *testing.T) {
	f := newFake(t, map[string][]byte{"d/x": []byte("x")})
	src := reach(t, source.Access{Storage: source.Storage{Anonymous: true}})
	read(t, src, "s3://some-bucket/d/x")
	_, err := source.Names(t.Context(), src, "s3://some-bucket/d")
	stagetest.Must(t, err)
	for _, r := range f.requests() {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Amz-Date") != "" {
			t.Errorf("%s %s is signed", r.Method, r.URL)
		}
	}
	server, _ := locked(t)
	_, err = reach(t, source.Access{Storage: source.Storage{Anonymous: true}}).Stat(t.Context(), "s3://data/x")
	if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "anonymous") {
		t.Errorf("an object of %s that is not public: %v", server.URL, err)
	}
}

// Each refusal says which credentials were used, and what to check, and no secret.
func TestDenied(t *testing.T) {
	server, k := locked(t)
	const secret = "sEcReTsEcReTsEcReTsEcReT"
	for name, c := range map[string]struct {
		set  func() source.Storage
		code errs.Code
		want []string
	}{
		"wrong secret": {
			func() source.Storage {
				t.Setenv("AWS_ACCESS_KEY_ID", k.id)
				t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
				return source.Storage{}
			},
			errs.Denied,
			[]string{"SignatureDoesNotMatch", "environment", "****" + k.id[len(k.id)-4:]},
		},
		"unknown key": {
			func() source.Storage {
				configure(t, "", "[mine]\naws_access_key_id=AKIANOBODYNOBODY9876\naws_secret_access_key="+secret+"\n")
				return source.Storage{Profile: "mine"}
			},
			errs.Denied,
			[]string{"does not know the access key", "AWS_SHARED_CREDENTIALS_FILE", `profile mine`, "****9876"},
		},
		"no credentials": {
			func() source.Storage { return source.Storage{} },
			errs.Denied,
			[]string{"there are no credentials", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "the default profile in ", "AWS_CONTAINER_CREDENTIALS", "instance", "anonymous"},
		},
		"unknown profile": {
			func() source.Storage {
				configure(t, "[profile training]\nregion=us-east-1\n[sso-session traininf]\n", "[other]\naws_access_key_id=A\naws_secret_access_key="+secret+"\n")
				return source.Storage{Profile: "trainig"}
			},
			errs.Config,
			[]string{"trainig", "did you mean training?"},
		},
		"a command that prints nonsense": {
			func() source.Storage {
				configure(t, "[profile mine]\ncredential_process = echo {"+secret+"\n", "")
				return source.Storage{Profile: "mine"}
			},
			errs.Denied,
			[]string{"process output", "the profile mine"},
		},
		"a command that fails": {
			func() source.Storage {
				configure(t, "[profile mine]\ncredential_process = false\n", "")
				return source.Storage{Profile: "mine"}
			},
			errs.Denied,
			[]string{"the profile mine", "exit status 1"},
		},
		"a session that has to be opened": {
			func() source.Storage {
				configure(t, "[profile mine]\nsso_start_url=https://x.example.com/start\nsso_region=us-east-1\nsso_account_id=1\nsso_role_name=reader\n", "")
				return source.Storage{Profile: "mine"}
			},
			errs.Denied,
			[]string{"aws sso login --profile mine"},
		},
		"a file of authorities that is missing": {
			func() source.Storage {
				t.Setenv("AWS_CA_BUNDLE", "/nowhere/ca.pem")
				return source.Storage{}
			},
			errs.Config,
			[]string{"/nowhere/ca.pem"},
		},
		"a region that is none": {
			func() source.Storage { return source.Storage{Region: "us east 1/"} },
			errs.Config,
			[]string{"us east 1/", "AWS_REGION"},
		},
	} {
		for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE"} {
			t.Setenv(v, "")
		}
		configure(t, "", "")
		t.Setenv("HOME", t.TempDir())
		src := reach(t, source.Access{Storage: c.set()})
		_, err := src.Stat(t.Context(), "s3://data/x")
		e := errs.From(err)
		text := err.Error() + " " + e.Hint
		if e.Code != c.code || e.Where.File != "s3://data/x" {
			t.Errorf("%s: %s: %s", name, e.Code, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: does not say %q: %s", name, want, text)
			}
		}
		if strings.Contains(text, secret) || strings.Contains(text, k.id) || strings.Contains(text, "NOBODYNOBODY") {
			t.Errorf("%s: says a secret: %s", name, text)
		}
		for _, err := range source.Walk(t.Context(), src, "s3://data") {
			if errs.CodeOf(err) != c.code {
				t.Errorf("%s: listing: %v", name, err)
			}
		}
	}
	_ = server
}

// Who may list a folder and nothing else is refused its own name as an object.
func TestFolderOfOneWhoMayNotReadObjects(t *testing.T) {
	f := newFake(t, map[string][]byte{"d/x": []byte("x")})
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("list-type") == "" {
			refuse(w, 403, "AccessDenied", "Access Denied")
			return true
		}
		return false
	}
	src := reach(t, source.Access{})
	if st := stat(t, src, "s3://some-bucket/d"); !st.Dir {
		t.Errorf("%+v", st)
	}
	_, err := src.Stat(t.Context(), "s3://some-bucket/d/x")
	if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "s3:GetObject") || !strings.Contains(e.Hint, "****1234") || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("%v, %s", err, e.Hint)
	}
}

// Buckets and names that are not there: the nearest is found by the listing of what is.
func TestNotFound(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	server.Put("train/000.tar", nil)
	server.In("imagenet").Put("train/000.tar", nil)
	src := reach(t, source.Access{})
	for name, want := range map[string]string{
		"s3://imagent/train/000.tar":       `did you mean "s3://imagenet/train/000.tar"?`,
		"s3://data/trian/000.tar":          `did you mean "s3://data/train/000.tar"?`,
		"s3://data/train/{000..001}.tar":   `has one entry: 000.tar`,
		"s3://data/train/*.npz":            `the folder "s3://data/train" has one entry: 000.tar`,
		"s3://completely-different/x/y.np": `the folder "s3://" has 2 entries: data, imagenet`,
	} {
		_, err := pattern.Expand(t.Context(), src, []string{name})
		if e := errs.From(err); e.Code != errs.NotFound || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v, %s", name, err, e.Hint)
		}
	}
	for name, want := range map[string][2]string{
		"s3://":              {"does not name a bucket", "s3://BUCKET/PATH; the buckets are data, imagenet"},
		"s3:///train":        {"does not name a bucket", "data, imagenet"},
		"s3://{data,}/train": {"does not name a bucket", "data, imagenet"},
		"s3://*":             {"pattern in the name of the bucket", "braces"},
		"s3://da*/train/*":   {"pattern in the name of the bucket", "braces"},
		"s3://dat?/train":    {"pattern in the name of the bucket", "braces"},
		"s3://{data,im*}/x":  {"pattern in the name of the bucket", "braces"},
	} {
		_, err := pattern.Expand(t.Context(), src, []string{name})
		if e := errs.From(err); e.Code != errs.Config || !strings.Contains(e.What, want[0]) || !strings.Contains(e.Hint, want[1]) {
			t.Errorf("%s: %v, %s", name, err, e.Hint)
		}
	}
	if all, err := pattern.Expand(t.Context(), src, []string{"s3://{data,imagenet}/train/*"}); err != nil || len(all) != 2 {
		t.Errorf("braces in the name of the bucket: %q, %v", all, err)
	}
	for _, name := range []string{"s3://no-such-bucket", "s3://no-such-bucket/x"} {
		_, err := src.Stat(t.Context(), name)
		if e := errs.From(err); e.Code != errs.NotFound || !strings.Contains(err.Error(), "no bucket no-such-bucket") || !strings.Contains(e.Hint, "endpoint_url") {
			t.Errorf("%s: %v, %s", name, err, e.Hint)
		}
		err = src.ReadAt(t.Context(), source.Info{Name: name + "/x", Size: 1}, make([]byte, 1), 0)
		if errs.CodeOf(err) != errs.NotFound || !strings.Contains(err.Error(), "no bucket") {
			t.Errorf("reading of %s: %v", name, err)
		}
	}
}

// Who may not list all buckets still reads that it is the bucket that is missing.
func TestNoBucketForOneWhoMayNotListThem(t *testing.T) {
	f := newFake(t, nil)
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/" {
			refuse(w, 403, "AccessDenied", "Access Denied")
		} else {
			refuse(w, 404, "NoSuchBucket", "The specified bucket does not exist")
		}
		return true
	}
	_, err := pattern.Expand(t.Context(), reach(t, source.Access{}), []string{"s3://some-bucket/train/*.tar"})
	if e := errs.From(err); e.Code != errs.NotFound || !strings.Contains(e.Hint, `there is no "s3://some-bucket"`) {
		t.Errorf("%v, %s", err, e.Hint)
	}
}

// Credentials that expire are had anew, once for all requests that meet it, and the read
// goes on; that they cannot be had is an error that says whose they are.
func TestExpired(t *testing.T) {
	server, k := locked(t)
	var turn, refused atomic.Int32
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", answering(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, k.issued(fmt.Sprint("session token ", turn.Add(1)), time.Now().Add(time.Hour)))
	}))
	gateway(t, server, k, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Security-Token") == "session token 1" && r.Method == http.MethodGet {
			refused.Add(1)
			refuse(w, 400, "ExpiredToken", "The provided token has expired: session token 1")
			return true
		}
		return false
	})
	src := reach(t, source.Access{})
	st := stat(t, src, "s3://data/x")
	errors := make(chan error)
	for range 8 {
		go func() { errors <- src.ReadAt(t.Context(), st, make([]byte, 1), 0) }()
	}
	for range 8 {
		stagetest.Must(t, <-errors)
	}
	if turn.Load() != 2 || refused.Load() == 0 {
		t.Errorf("credentials were had %d times; %d requests were refused", turn.Load(), refused.Load())
	}

	front(t, server, func(w http.ResponseWriter, r *http.Request) bool {
		refuse(w, 400, "ExpiredToken", "The provided token has expired: "+r.Header.Get("X-Amz-Security-Token"))
		return true
	}, nil)
	turn.Store(0)
	err := reach(t, source.Access{}).ReadAt(t.Context(), st, make([]byte, 1), 0)
	if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "container") || strings.Contains(err.Error(), "session token 2") || turn.Load() != 2 {
		t.Errorf("after %d tokens: %v, %s", turn.Load(), err, e.Hint)
	}
}

// A server of credentials that fails for a while is waited for, once it has given some.
func TestCredentialsThatCannotBeRenewed(t *testing.T) {
	server, k := locked(t)
	var asked atomic.Int32
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", answering(t, func(w http.ResponseWriter, _ *http.Request) {
		if n := asked.Add(1); n == 1 {
			fmt.Fprint(w, k.issued("temporary", time.Now().Add(2*time.Second))) // less than is left of any
		} else if n < 6 {
			w.WriteHeader(http.StatusBadRequest)
		} else {
			fmt.Fprint(w, k.issued("temporary", time.Now().Add(time.Hour)))
		}
	}))
	gateway(t, server, k, func(http.ResponseWriter, *http.Request) bool { return false })
	src := reach(t, source.Access{})
	st := stat(t, src, "s3://data/x")
	stagetest.Must(t, src.ReadAt(t.Context(), st, make([]byte, 1), 0))
	if asked.Load() < 6 {
		t.Errorf("credentials were asked for %d times", asked.Load())
	}
}

// A server of credentials that takes a connection and never answers is no longer waited for
// than any other: the next attempt finds it well, or the error says what was waited for.
func TestCredentialsThatDoNotCome(t *testing.T) {
	server, k := locked(t)
	gateway(t, server, k, func(http.ResponseWriter, *http.Request) bool { return false })
	for name, silent := range map[string]int32{"once": 1, "for good": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", answering(t, func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) <= silent {
					<-r.Context().Done()
					return
				}
				fmt.Fprint(w, k.issued("temporary", time.Now().Add(time.Hour)))
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := reachBy(t, source.Access{Deadline: 2 * time.Second}, remote.Options{Stall: time.Second / 2}).Stat(ctx, "s3://data/x")
			if e := errs.From(err); silent == 1 {
				stagetest.Must(t, err)
			} else if e.Code != errs.Unreachable || !strings.Contains(e.What, "credentials") || !strings.Contains(e.Hint, "default profile") || e.Where.File != "s3://data/x" {
				t.Errorf("%v (%s)", err, e.Hint)
			}
		})
	}
}
