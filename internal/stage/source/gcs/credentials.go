package gcs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// scope is all that tokens are good for.
const scope = "https://www.googleapis.com/auth/devstorage.read_only"

// credentials are who reads: found at the first request, in the order of Google's own
// libraries, and kept until they are refused.
type credentials struct {
	store  *store
	bearer remote.Bearer
	ahead  atomic.Int64 // by how much Google's clock is ahead of this one, in nanoseconds; see serviceToken

	mu  sync.Mutex
	who identity // as it was last found
}

// identity is whose credentials are used, and where they were found.
type identity struct {
	from    string   // "the file X of GOOGLE_APPLICATION_CREDENTIALS"; "": nobody
	looked  []string // places without credentials, in order
	fixed   string   // a token that is not renewed
	machine bool     // of the metadata server
	file    []byte   // of credentials, in JSON
	kind    string   // "service_account"
	email   string   // whose key it is; "": not said
	project string   // "": not said
}

func newCredentials(s *store) *credentials {
	c := &credentials{store: s}
	c.bearer.Get = c.get
	return c
}

// token is what a request carries; "": it is anonymous.
func (c *credentials) token(ctx context.Context, name string) (string, error) {
	a := c.store.access.Storage
	if a.Anonymous || c.store.emulator && a.TokenEnv == "" || !remote.Private(&c.store.endpoint) {
		return "", nil
	}
	token, err := c.bearer.Token(ctx)
	var e *errs.Error
	if errors.As(err, &e) && e.Where.File == "" {
		at := *e
		return "", at.At(errs.Where{File: strings.Clone(name)})
	}
	return token, err
}

func (c *credentials) refused(token string) { c.bearer.Refused(token) }

// renewable says whether another token can be had.
func (c *credentials) renewable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.who.fixed == ""
}

// get is remote.Bearer's Get. The file is read again whenever a token is needed: it may
// have been replaced by one that is good.
func (c *credentials) get(ctx context.Context, _ string) (string, time.Time, error) {
	who, err := c.find(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	c.mu.Lock()
	c.who = who
	c.mu.Unlock()
	switch {
	case who.fixed != "":
		return who.fixed, time.Time{}, nil
	case who.machine:
		return machineToken(ctx)
	case who.file == nil:
		return "", time.Time{}, nil
	}
	seen := &witness{client: c.store.net.Client()}
	if google.CredentialsType(who.kind) == google.ServiceAccount {
		return c.serviceToken(ctx, seen, who)
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, seen.own())
	creds, err := google.CredentialsFromJSONWithTypeAndParams(ctx, who.file, google.CredentialsType(who.kind), google.CredentialsParams{Scopes: []string{scope}})
	if err != nil {
		return "", time.Time{}, errs.New(errs.Denied, "%s cannot be used", who.from).Because(err).Try("%s", help)
	}
	t, err := creds.TokenSource.Token()
	if err != nil {
		return "", time.Time{}, seen.noToken(ctx, who, err)
	}
	return t.AccessToken, t.Expiry, nil
}

const help = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials; for public data, set dataset.storage.anonymous"

// find looks for credentials.
func (c *credentials) find(ctx context.Context) (who identity, err error) {
	if env := c.store.access.Storage.TokenEnv; env != "" {
		who.from, who.fixed = "the token of "+env+" (dataset.storage.token_env)", os.Getenv(env)
		if who.fixed == "" {
			return who, errs.New(errs.Config, "dataset.storage.token_env names %s, which is not set", errs.Name(env)).Try("set it, for example %s=$(gcloud auth print-access-token)", env)
		}
		return who, nil
	}
	if file := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return who, errs.New(errs.Denied, "the file that GOOGLE_APPLICATION_CREDENTIALS names cannot be read").Because(err).Try("%s", help)
		}
		return who.of(b, "the file "+errs.Name(file)+" of GOOGLE_APPLICATION_CREDENTIALS")
	}
	who.looked = append(who.looked, "GOOGLE_APPLICATION_CREDENTIALS (not set)")
	file := gcloudFile()
	b, err := os.ReadFile(file)
	switch {
	case err == nil:
		return who.of(b, "gcloud's file "+errs.Name(file))
	case errors.Is(err, fs.ErrNotExist):
		who.looked = append(who.looked, "gcloud's file "+errs.Name(file)+" (not there)")
	default:
		return who, errs.New(errs.Denied, "gcloud's file of credentials cannot be read").Because(err).Try("%s", help)
	}
	if onGoogle(ctx) {
		who.machine, who.from = true, "the service account of this machine (metadata server)"
		return who, nil
	}
	who.looked = append(who.looked, "the metadata server (no answer: this is not a machine of Google Cloud)")
	return who, ctx.Err()
}

// of reads a file of credentials.
func (who identity) of(b []byte, from string) (identity, error) {
	var f struct {
		Type         string `json:"type"`
		Email        string `json:"client_email"`
		Project      string `json:"project_id"`
		QuotaProject string `json:"quota_project_id"`
		Key          string `json:"private_key"`
	}
	if err := json.Unmarshal(b, &f); err != nil || f.Type == "" {
		return who, errs.New(errs.Denied, "%s is not a file of credentials in JSON", from).Try("%s", help)
	}
	if f.Type == "service_account" && f.Key == "" { // the library would fail as if the network had
		return who, errs.New(errs.Denied, "%s is the file of a service account, but has no private_key", from).Try("download the key again, or %s", help)
	}
	who.from, who.file, who.kind, who.email, who.project = from, b, f.Type, f.Email, f.QuotaProject
	if who.project == "" {
		who.project = f.Project
	}
	return who, nil
}

// gcloudFile is where `gcloud auth application-default login` writes.
func gcloudFile() string {
	const name = "application_default_credentials.json"
	if dir := os.Getenv("CLOUDSDK_CONFIG"); dir != "" {
		return filepath.Join(dir, name)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, ".config", "gcloud", name)
}

// witness keeps the last answer to a request for a token: the errors of the libraries
// quote some of them, and type few.
type witness struct {
	client *http.Client
	status int
	header http.Header
	body   []byte
}

// own is a client whose answers are kept.
func (w *witness) own() *http.Client {
	return &http.Client{Transport: w, CheckRedirect: w.client.CheckRedirect}
}

// RoundTrip is http.RoundTripper's.
func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.client.Transport.RoundTrip(req)
	if err != nil || resp.StatusCode < 300 {
		w.status = 0
		return resp, err
	}
	w.status, w.header = resp.StatusCode, resp.Header
	w.body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(w.body))
	return resp, err
}

// noToken is the error of credentials for which no token was issued: what the server
// that makes them says, and nothing of what was sent to it.
func (w *witness) noToken(ctx context.Context, who identity, err error) error {
	if w.status == 0 {
		var local *fs.PathError
		if errors.As(err, &local) {
			return errs.New(errs.Denied, "%s cannot be used: a file that it refers to cannot be read", who.from).Because(err).Try("%s", help)
		}
		return remote.Failed(ctx, "", err)
	}
	var j struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(w.body, &j) // the status alone says enough
	why := remote.Said{Status: w.status, Code: j.Error, Message: j.Description}.Short(60)
	if f := remote.Answered(w.header, w.status, why.Code); f != nil {
		f.What = "no token was issued: " + f.What
		return f
	}
	return errs.New(errs.Denied, "%s is not accepted: Google issued no token for it", who.from).Because(why).Try("%s", help)
}

// project is the one that pays, or whose buckets are listed.
func (c *credentials) project(ctx context.Context, name string) (string, error) {
	for _, env := range []string{"GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_QUOTA_PROJECT", "GCLOUD_PROJECT"} {
		if p := os.Getenv(env); p != "" {
			return p, nil
		}
	}
	if c.store.emulator {
		return "emulator", nil
	}
	if _, err := c.token(ctx, name); err != nil {
		return "", err
	}
	c.mu.Lock()
	who := c.who
	c.mu.Unlock()
	if who.machine && who.project == "" {
		who.project, _ = machine(ctx, "project/project-id", machineAnswers)
		c.mu.Lock()
		c.who.project = who.project
		c.mu.Unlock()
	}
	if who.project == "" {
		return "", errs.New(errs.Config, "the project to bill is not known").At(errs.Where{File: strings.Clone(name)}).Try("set GOOGLE_CLOUD_PROJECT")
	}
	return who.project, nil
}

// hint says what may help if a request is denied: whose credentials were used, and why.
func (c *credentials) hint() string {
	a := c.store.access.Storage
	switch {
	case a.Anonymous:
		return "the request had no credentials, because dataset.storage.anonymous is set; remove it if the data is not public"
	case c.store.emulator && a.TokenEnv == "":
		return "the request had no credentials, because STORAGE_EMULATOR_HOST is set; unset it to read from Google"
	case !remote.Private(&c.store.endpoint):
		return "the request had no credentials, because they are not sent over plain HTTP; write https:// in endpoint_url"
	}
	c.mu.Lock()
	who := c.who
	c.mu.Unlock()
	switch {
	case who.from == "":
		return "no credentials were found in: dataset.storage.token_env (not set), " + strings.Join(who.looked, ", ") + "; " + help
	case who.email != "":
		return "the credentials are those of " + errs.Name(who.email) + ", from " + who.from + "; give it the role Storage Object Viewer (roles/storage.objectViewer) on the bucket"
	}
	return "the credentials are " + who.from + "; give them the role Storage Object Viewer (roles/storage.objectViewer) on the bucket, or use others: " + help
}
