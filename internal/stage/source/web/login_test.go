package web_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// guarded is a server that wants this header Authorization.
func guarded(t *testing.T, want string) (url string, got *seen) {
	got = &seen{}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.add(r)
		if r.Header.Get("Authorization") != want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		good(w, r)
	}).URL, got
}

const (
	basicUser = "Basic dXNlcjpodXNoIGh1c2g=" // user:hush hush
	bearer    = "Bearer hush.token"
)

// Where credentials come from, and what is said of them if they do not do.
func TestCredentials(t *testing.T) {
	t.Setenv("STOKER_TEST_TOKEN", " hush.token\n")
	t.Setenv("STOKER_TEST_NONE", "")
	for what, c := range map[string]struct {
		netrc   string
		user    string // of the URL
		storage source.Storage
		written string // HERE: the server
		want    string // Authorization
		says    string // what the error says was sent
	}{
		"netrc":                {netrc: "machine other login x password y\nmachine 127.0.0.1\n\tlogin user\n\tpassword \"hush hush\"\nmachine 127.0.0.1 login z password z", want: basicUser, says: "the entry of this host in "},
		"netrc, comments":      {netrc: "# hush\nmacdef init\nmachine 127.0.0.1 login no\n\nmachine 127.0.0.1 account a login user password \"hush\\ hush\"", want: basicUser, says: "the entry of this host in "},
		"default":              {netrc: "default login user password \"hush hush\"", written: "HERE/x", want: basicUser, says: "the default entry of "},
		"default, not written": {netrc: "default login user password hush", says: "without credentials"},
		"no netrc":             {says: "without credentials"},
		"other machines":       {netrc: "machine h login user password hush\nmachine 127.0.0.10 login user password hush", says: "without credentials"},
		"URL":                  {user: "user:hush%20hush@", netrc: "machine 127.0.0.1 login a password b", storage: source.Storage{TokenEnv: "STOKER_TEST_TOKEN"}, written: "HERE/x", want: basicUser, says: "the user name and password of the URL"},
		"token":                {storage: source.Storage{TokenEnv: "STOKER_TEST_TOKEN"}, written: "HERE/{a,b}/x", want: bearer, says: "the token of the environment variable STOKER_TEST_TOKEN"},
		"token, list":          {storage: source.Storage{TokenEnv: "STOKER_TEST_TOKEN"}, written: "@HERE/x", want: bearer, says: "the token of "},
		"token, not written":   {storage: source.Storage{TokenEnv: "STOKER_TEST_TOKEN"}, written: "http://127.0.0.1:1/x", says: "STOKER_TEST_TOKEN is sent only to hosts that dataset.path or dataset.origins name"},
		"anonymous":            {user: "user:hush@", netrc: "machine 127.0.0.1 login user password hush", storage: source.Storage{Anonymous: true}, says: "dataset.storage.anonymous is set"},
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "netrc")
			stagetest.Must(t, os.WriteFile(file, []byte(c.netrc), 0o600))
			t.Setenv("NETRC", file)
			for _, enough := range []bool{true, false} {
				want := c.want
				if !enough {
					want = "another"
				}
				url, got := guarded(t, want)
				src := openWith(t, source.Access{Storage: c.storage, Written: &source.Written{Names: []string{strings.ReplaceAll(c.written, "HERE", url)}}})
				st, err := src.Stat(t.Context(), strings.Replace(url, "://", "://"+c.user, 1)+"/x")
				for _, r := range got.take() {
					if r.Header.Get("Authorization") != c.want {
						t.Errorf("%s was sent, want %s", r.Header.Get("Authorization"), c.want)
					}
				}
				if enough {
					if err != nil || st.Size != 20 {
						t.Errorf("%+v, %v", st, err)
					}
					continue
				}
				e := errs.From(err)
				if err == nil || e.Code != errs.Denied || !strings.Contains(e.What, "401 Unauthorized") || !strings.Contains(e.What, c.says) || e.Hint == "" || strings.Contains(e.What+e.Hint, "hush") {
					t.Errorf("%v (%s), want %q", err, e.Hint, c.says)
				}
			}
		})
	}
}

// What was set and cannot be used is an error, and not silence.
func TestCredentialsThatCannotBeRead(t *testing.T) {
	url, got := guarded(t, "none")
	dir := t.TempDir()
	bad := filepath.Join(dir, "netrc")
	stagetest.Must(t, os.WriteFile(bad, []byte("machine h\nlogin u\npasword hush\n"), 0o600))
	t.Setenv("STOKER_TEST_ODD", "hush\r\nX-Evil: 1")
	mine := &source.Written{Names: []string{url + "/x"}}
	for says, c := range map[string]struct {
		netrc  string
		access source.Access
	}{
		"STOKER_TEST_UNSET": {os.DevNull, source.Access{Storage: source.Storage{TokenEnv: "STOKER_TEST_UNSET"}, Written: mine}},
		"STOKER_TEST_ODD":   {os.DevNull, source.Access{Storage: source.Storage{TokenEnv: "STOKER_TEST_ODD"}, Written: mine}},
		"line 3":            {bad, source.Access{}},
		"no such file":      {filepath.Join(dir, "none"), source.Access{}},
		"it is a folder":    {dir, source.Access{}},
	} {
		t.Setenv("NETRC", c.netrc)
		_, err := openWith(t, c.access).Stat(t.Context(), url+"/x")
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.Error(), says) || e.Hint == "" || strings.Contains(e.Error()+e.Hint, "hush") {
			t.Errorf("%s: %v (%s)", says, err, e.Hint)
		}
	}
	if n := len(got.take()); n != 0 {
		t.Errorf("%d requests were made without what was set", n)
	}
	t.Setenv("NETRC", "")
	t.Setenv("HOME", t.TempDir()) // no .netrc there is no error
	if _, err := open(t).Stat(t.Context(), url+"/x"); errs.CodeOf(err) != errs.Denied {
		t.Errorf("%v", err)
	}
}
