package gcs_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// tokens is a server that gives tokens: Google's, that of a workload's identity, and the
// metadata server of a machine. The bucket takes the newest one only.
type tokens struct {
	url   string
	given atomic.Int64
	email string         // who a key was of
	fails func() bool    // nil: never
	asked map[string]int // by kind
	ahead time.Duration  // of the clock of this machine, theirs
	late  int            // assertions that were refused for their time
}

const scope = "https://www.googleapis.com/auth/devstorage.read_only"

func (k *tokens) newest() string { return fmt.Sprintf("HUSH-token-%d", k.given.Load()) }

func (k *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if k.fails != nil && k.fails() {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "Account has been deleted"}`))
		return
	}
	_ = r.ParseForm()
	kind, wrong := "", ""
	expect := func(what, got, want string) {
		if !strings.Contains(got, want) {
			wrong = fmt.Sprintf("%s is %q, not %q", what, got, want)
		}
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/computeMetadata/v1/"):
		w.Header().Set("Metadata-Flavor", "Google")
		expect("Metadata-Flavor", r.Header.Get("Metadata-Flavor"), "Google")
		switch strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/") {
		case "instance/service-accounts/default/email":
			_, _ = w.Write([]byte("machine@example.com"))
			return
		case "project/project-id":
			_, _ = w.Write([]byte("of-the-machine"))
			return
		}
		kind = "machine"
		expect("scopes", r.Form.Get("scopes"), scope)
	case strings.HasSuffix(r.Form.Get("grant_type"), "jwt-bearer"):
		kind = "service account"
		claims, _ := base64.RawURLEncoding.DecodeString(strings.Split(r.Form.Get("assertion"), ".")[1])
		expect("the assertion", string(claims), `"iss":"`+k.email+`"`)
		expect("the assertion", string(claims), scope)
		now := time.Now().Add(k.ahead)
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		if wrong == "" && !timely(claims, now) {
			k.late++
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "Invalid JWT: Token must be a short-lived token"}`))
			return
		}
	case r.Form.Get("grant_type") == "refresh_token":
		kind = "user"
		expect("refresh_token", r.Form.Get("refresh_token"), "HUSH-refresh")
	case strings.HasSuffix(r.Form.Get("grant_type"), "token-exchange"):
		kind = "workload"
		expect("subject_token", r.Form.Get("subject_token"), "HUSH-subject")
		expect("scope", r.Form.Get("scope"), scope)
	}
	if wrong != "" || kind == "" {
		http.Error(w, kind+": "+wrong, http.StatusTeapot)
		return
	}
	k.asked[kind]++
	k.given.Add(1)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": k.newest(), "expires_in": 3600, "token_type": "Bearer", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})
}

// timely says whether Google accepts when claims say they were made and expire.
func timely(claims []byte, now time.Time) bool {
	var c struct{ Iat, Exp int64 }
	err := json.Unmarshal(claims, &c)
	made, until := time.Unix(c.Iat, 0), time.Unix(c.Exp, 0)
	return err == nil && !made.After(now) && now.Sub(made) < 5*time.Minute && until.After(now) && until.Sub(made) <= time.Hour
}

// guarded is a bucket that wants a token.
func guarded(t *testing.T) (*tokens, *api, source.Access) {
	t.Helper()
	a, access := serve(t, map[string]object{"x": {data: []byte("data"), generation: 1}})
	k := &tokens{email: "job@example.com", asked: map[string]int{}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	k.url = server.URL
	a.allowed = func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+k.newest() && k.given.Load() > 0
	}
	return k, a, access
}

// files are those that the kinds of credentials are in.
func (k *tokens) files(t *testing.T) map[string]map[string]string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	stagetest.Must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	stagetest.Must(t, err)
	subject := stagetest.Put(t, filepath.Join(t.TempDir(), "subject"), []byte("HUSH-subject"))
	return map[string]map[string]string{
		"service account": {
			"type": "service_account", "client_email": k.email, "token_uri": k.url, "project_id": "of-the-file",
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		},
		"user": {"type": "authorized_user", "client_id": "c", "client_secret": "HUSH-secret", "refresh_token": "HUSH-refresh", "quota_project_id": "of-the-file", "token_uri": k.url},
		"workload": {
			"type": "external_account", "audience": "//iam.googleapis.com/pool", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
			"token_url": k.url, "credential_source": subject,
		},
	}
}

func write(t *testing.T, path string, f map[string]string) string {
	t.Helper()
	all := map[string]any{}
	for key, v := range f {
		all[key] = v
	}
	if f["credential_source"] != "" {
		all["credential_source"] = map[string]string{"file": f["credential_source"]}
	}
	b, err := json.Marshal(all)
	stagetest.Must(t, err)
	return stagetest.Put(t, path, b)
}

// Each kind of credentials gives a token, which all requests share until it is refused;
// then there is another one, once.
func TestCredentials(t *testing.T) {
	for _, kind := range []string{"service account", "workload", "user", "machine"} {
		t.Run(kind, func(t *testing.T) {
			k, a, access := guarded(t)
			access.Storage.RequesterPays = true
			switch kind {
			case "machine":
				t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(k.url, "http://"))
			case "user":
				dir := t.TempDir()
				write(t, dir+"/application_default_credentials.json", k.files(t)[kind])
				t.Setenv("CLOUDSDK_CONFIG", dir)
			default:
				t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", write(t, t.TempDir()+"/key.json", k.files(t)[kind]))
			}
			if kind == "workload" {
				t.Setenv("GOOGLE_CLOUD_PROJECT", "of-the-environment")
			}
			src := open(t, access)
			for range 3 {
				if b, err := readAll(t, src, "gs://photos/x"); err != nil || string(b) != "data" {
					t.Fatalf("%q, %v", b, err)
				}
			}
			if k.asked[kind] != 1 {
				t.Errorf("tokens were asked for: %v", k.asked)
			}
			if p := a.seen[0].URL.Query().Get("userProject"); !strings.HasPrefix(p, "of-the-") {
				t.Errorf("the project %q pays", p)
			}
			k.given.Add(1) // what there is has expired
			if b, err := readAll(t, src, "gs://photos/x"); err != nil || string(b) != "data" {
				t.Fatalf("with a token that has expired: %q, %v", b, err)
			}
			if k.asked[kind] != 2 {
				t.Errorf("tokens were asked for: %v", k.asked)
			}
			a.allowed = func(*http.Request) bool { return false }
			_, err := readAll(t, src, "gs://photos/x")
			e := errs.From(err)
			if e.Code != errs.Denied || !strings.Contains(e.Hint, "the credentials are") || k.asked[kind] != 3 {
				t.Errorf("refused for good: %v (%s), %v", err, e.Hint, k.asked)
			}
			k.fails = func() bool { return true }
			_, err2 := readAll(t, open(t, access), "gs://photos/x")
			if kind != "machine" && (errs.CodeOf(err2) != errs.Denied || !strings.Contains(err2.Error(), "invalid_grant")) || err2 == nil {
				t.Errorf("a deleted account: %v", err2)
			}
			for _, err := range []error{err, err2} {
				if all := err.Error() + errs.From(err).Hint; strings.Contains(all, "HUSH") || strings.Contains(all, "PRIVATE KEY") {
					t.Errorf("the error has a secret: %s", all)
				}
			}
		})
	}
}

// If the clock of this machine is wrong, requests for tokens are signed with the time of
// Google's answers: that costs one request, once. A right clock is not the reason.
func TestWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{-20 * time.Minute, 20 * time.Minute, -400 * 24 * time.Hour, -2 * time.Minute, -15 * time.Second} {
		k, _, access := guarded(t)
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", write(t, t.TempDir()+"/key.json", k.files(t)["service account"]))
		k.ahead = ahead
		src := open(t, access)
		for range 2 {
			if b, err := readAll(t, src, "gs://photos/x"); err != nil || string(b) != "data" {
				t.Fatalf("%v: %q, %v", ahead, b, err)
			}
			k.given.Add(1) // a new token is needed
		}
		if k.late != 1 || k.asked["service account"] != 2 {
			t.Errorf("%v: %d requests were refused, and %v tokens given", ahead, k.late, k.asked)
		}
		k.ahead = 0 // the clock was set
		late := 1
		if ahead.Abs() > 5*time.Minute {
			late++ // the correction is wrong now
		}
		if b, err := readAll(t, src, "gs://photos/x"); err != nil || string(b) != "data" || k.late != late {
			t.Errorf("%v: after the clock was set: %q, %v", ahead, b, err)
		}
	}
}

// A file that cannot make a request is an error at once.
func TestServiceAccountThatCannotAsk(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, 512)
	stagetest.Must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	stagetest.Must(t, err)
	t.Setenv("GODEBUG", "")
	short := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	for _, c := range [][3]string{
		{"private_key", "HUSH", "private_key"},
		{"private_key", short, "512-bit"},
		{"token_uri", "https://h:HUSH", "token_uri"},
		{"token_uri", "oauth2.googleapis.com/token", "token_uri"},
	} {
		k, _, access := guarded(t)
		f := k.files(t)["service account"]
		f[c[0]] = c[1]
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", write(t, t.TempDir()+"/key.json", f))
		_, err := readAll(t, open(t, access), "gs://photos/x")
		if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(err.Error(), "cannot be used") || !strings.Contains(err.Error(), c[2]) || strings.Contains(err.Error()+e.Hint, "HUSH") {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}

// Without credentials the error says where they were looked for, in which order.
func TestNoCredentials(t *testing.T) {
	k, a, access := guarded(t)
	_, err := readAll(t, open(t, access), "gs://photos/x")
	e := errs.From(err)
	at := 0
	for _, place := range []string{"token_env (not set)", "GOOGLE_APPLICATION_CREDENTIALS (not set)", "application_default_credentials.json (not there)", "metadata server (no answer", "gcloud auth application-default login"} {
		i := strings.Index(e.Hint[at:], place)
		if i < 0 {
			t.Fatalf("%q is not in its place of: %s", place, e.Hint)
		}
		at += i
	}
	if e.Code != errs.Denied || len(a.seen) != 1 || a.seen[0].Header.Get("Authorization") != "" {
		t.Errorf("%v, after %d requests", err, len(a.seen))
	}
	a.allowed = func(r *http.Request) bool { return r.Header.Get("Authorization") == "" } // data that are public
	if b, err := readAll(t, open(t, access), "gs://photos/x"); err != nil || string(b) != "data" {
		t.Errorf("%q, %v", b, err)
	}

	for file, says := range map[string]string{"missing": "cannot be read", "text": "is not a file of credentials", "keyless": "has no private_key"} {
		dir := t.TempDir()
		stagetest.Put(t, dir+"/keyless", []byte(`{"type": "service_account", "client_email": "e"}`))
		stagetest.Put(t, dir+"/text", []byte("a key"))
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", dir+"/"+file)
		_, err := readAll(t, open(t, access), "gs://photos/x")
		if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(err.Error(), says) || e.Hint == "" || e.Where.File == "" {
			t.Errorf("%s: %v", file, err)
		}
	}
	access.Storage.Anonymous = true
	if b, err := readAll(t, open(t, access), "gs://photos/x"); err != nil || string(b) != "data" {
		t.Errorf("anonymous: %q, %v", b, err)
	}

	access.Storage = source.Storage{EndpointURL: access.Storage.EndpointURL, TokenEnv: "MY_TOKEN"}
	t.Setenv("MY_TOKEN", "")
	if _, err := readAll(t, open(t, access), "gs://photos/x"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "MY_TOKEN") {
		t.Errorf("a variable that is not set: %v", err)
	}
	t.Setenv("MY_TOKEN", "HUSH-mine")
	a.allowed = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer HUSH-mine" }
	if b, err := readAll(t, open(t, access), "gs://photos/x"); err != nil || string(b) != "data" {
		t.Errorf("a token of a variable: %q, %v", b, err)
	}
	a.allowed = func(r *http.Request) bool { return false }
	n := len(a.seen)
	_, err = readAll(t, open(t, access), "gs://photos/x")
	if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "MY_TOKEN") || strings.Contains(err.Error()+e.Hint, "HUSH") || len(a.seen) != n+1 {
		t.Errorf("a token of a variable that is refused: %v (%s)", err, e.Hint)
	}
	if len(k.asked) != 0 {
		t.Errorf("tokens were asked for: %v", k.asked)
	}
}

// A machine that is not Google's, where packets to the metadata server are lost, does not
// keep a request waiting for long; nor does a request that ends wait for it.
func TestNoMetadataServer(t *testing.T) {
	_, _, access := guarded(t)
	hole, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	stagetest.Must(t, err)
	defer hole.Close()
	t.Setenv("GCE_METADATA_HOST", hole.Addr().String())
	src := open(t, access)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := src.Stat(ctx, "gs://photos/x"); err == nil || ctx.Err() == nil {
		t.Errorf("it did not wait: %v", err)
	}
	if _, err := src.Stat(t.Context(), "gs://photos/x"); errs.CodeOf(err) != errs.Denied {
		t.Errorf("%v", err)
	}
}

// A token goes to who it is for: not where plain HTTP is read by others.
func TestTokensAreNotSentInTheClear(t *testing.T) {
	_, _, access := guarded(t)
	t.Setenv("MY_TOKEN", "HUSH")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a token was sent in the clear")
		}
		refuse(w, false, 401, "authError", "Anonymous caller")
	}))
	defer server.Close()
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	access.Storage = source.Storage{EndpointURL: "http://0.0.0.0" + port, TokenEnv: "MY_TOKEN"}
	_, err := readAll(t, open(t, access), "gs://photos/x")
	if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "plain HTTP") {
		t.Errorf("%v (%s)", err, e.Hint)
	}
}
