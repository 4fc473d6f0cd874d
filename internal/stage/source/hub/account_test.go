package hub_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestTokens(t *testing.T) {
	const secret = "hf_planted0123456789"
	s := serve(t)
	s.Commit("owner/open", "main", files("x.bin", "open"))
	s.Commit("owner/hidden", "main", files("x.bin", "hidden"))
	s.Commit("owner/gated", "main", files("x.bin", "gated", "y.txt", "gated"))
	s.Private("owner/hidden")
	s.Gate("owner/gated")
	s.Allow(secret, "owner/hidden", "owner/gated")
	s.Allow("hf_somebody")
	file := filepath.Join(t.TempDir(), "token")
	stagetest.Must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	home := t.TempDir()
	stagetest.Must(t, os.WriteFile(filepath.Join(home, "token"), []byte(secret), 0o600))
	for name, c := range map[string]struct {
		env    map[string]string
		access source.Storage
		sent   bool
	}{
		"none":                {},
		"HF_TOKEN":            {env: map[string]string{"HF_TOKEN": secret}, sent: true},
		"its old name":        {env: map[string]string{"HUGGING_FACE_HUB_TOKEN": " " + secret + "\n"}, sent: true},
		"HF_TOKEN_PATH":       {env: map[string]string{"HF_TOKEN_PATH": file}, sent: true},
		"HF_HOME":             {env: map[string]string{"HF_HOME": home}, sent: true},
		"not implied":         {env: map[string]string{"HF_TOKEN": secret, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}},
		"anonymous":           {env: map[string]string{"HF_TOKEN": secret}, access: source.Storage{Anonymous: true}},
		"token_env":           {env: map[string]string{"MINE": secret, "HF_TOKEN": "hf_somebody", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, access: source.Storage{TokenEnv: "MINE"}, sent: true},
		"endpoint_url is one": {env: map[string]string{"HF_TOKEN": secret, "HF_ENDPOINT": "http://127.0.0.1:1"}, access: source.Storage{EndpointURL: s.URL + "/"}, sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			s.Seen()
			src := open(t, source.Access{Storage: c.access})
			if got := read(t, src, "hf://datasets/owner/open/x.bin"); got != "open" {
				t.Errorf("%q", got)
			}
			for _, name := range []string{"hf://datasets/owner/hidden/x.bin", "hf://datasets/owner/gated/x.bin", "hf://datasets/owner/gated/y.txt"} {
				_, err := source.ReadAll(t.Context(), src, name, 100)
				if (err == nil) != c.sent {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, r := range s.Seen() {
				if (r.Token == secret) != (c.sent && !r.Storage) {
					t.Errorf("%+v: a token where there should be none, or none where there should be one", r)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		code errs.Code
		says []string
	}{
		"gated, no token":         {file: "gated", code: errs.Denied, says: []string{s.URL + "/datasets/owner/gated", "no token was found in HF_TOKEN"}},
		"gated, another's token":  {env: map[string]string{"HF_TOKEN": "hf_somebody"}, file: "gated", code: errs.Denied, says: []string{s.URL + "/datasets/owner/gated", "that of HF_TOKEN"}},
		"hidden, no token":        {file: "hidden", code: errs.NotFound, says: []string{s.URL + "/datasets/owner/hidden", "private", "no token was found in HF_TOKEN"}},
		"hidden, another's token": {env: map[string]string{"HF_TOKEN": "hf_somebody"}, file: "hidden", code: errs.NotFound, says: []string{"private", "that of HF_TOKEN"}},
		"a token nobody knows":    {env: map[string]string{"HF_TOKEN_PATH": file + "s"}, file: "open", code: errs.Denied, says: []string{"does not accept the token of the file " + file + "s"}},
	} {
		t.Run(name, func(t *testing.T) {
			stagetest.Must(t, os.WriteFile(file+"s", []byte("hf_stale"), 0o600))
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			path := "hf://datasets/owner/" + c.file + "/x.bin"
			_, err := source.ReadAll(t.Context(), open(t, source.Access{}), path, 100)
			e := errs.From(err)
			text := fmt.Sprint(err) + e.Hint
			if e.Code != c.code || e.Where.File != path || strings.Contains(text, "hf_") {
				t.Errorf("%v (%s)", err, e.Hint)
			}
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %v (%s)", want, err, e.Hint)
				}
			}
		})
	}
	t.Run("renewed", func(t *testing.T) {
		t.Setenv("HF_TOKEN_PATH", file)
		s.Allow("hf_first", "owner/hidden")
		stagetest.Must(t, os.WriteFile(file, []byte("hf_first"), 0o600))
		src := open(t, source.Access{})
		if got := read(t, src, "hf://datasets/owner/hidden/x.bin"); got != "hidden" {
			t.Errorf("%q", got)
		}
		s.Forget("hf_first")
		s.Expire()
		stagetest.Must(t, os.WriteFile(file, []byte(secret), 0o600))
		if got := read(t, src, "hf://datasets/owner/hidden/x.bin"); got != "hidden" {
			t.Errorf("%q", got)
		}
	})
}

// A dataset that is hidden while it is read is an error that says so.
func TestHiddenSince(t *testing.T) {
	s := serve(t)
	s.Commit("o/n", "main", files("x.bin", "data", "y.txt", "text"))
	src := open(t, source.Access{})
	x, y := stat(t, src, "hf://datasets/o/n/x.bin"), stat(t, src, "hf://datasets/o/n/y.txt")
	s.Private("o/n")
	for _, obj := range []source.Info{x, y} {
		err := src.ReadAt(t.Context(), obj, make([]byte, 4), 0)
		if e := errs.From(err); e.Code != errs.NotFound || e.Where.File != obj.Name || !strings.Contains(e.What, "no longer") || !strings.Contains(e.Hint, "HF_TOKEN") {
			t.Errorf("%v (%s)", err, e.Hint)
		}
	}
}

// Each says what to write instead, or what to do.
func TestErrorsTeach(t *testing.T) {
	s := serve(t)
	s.Commit("owner/photos", "main", files("data/train-000.tar", "1", "data/test-000.tar", "1"))
	s.Commit("owner/photos", "refs/convert/parquet", files("x.parquet", "1"))
	s.Commit("other/pictures", "main", files("x.tar", "1"))
	src := open(t, source.Access{})
	for name, c := range map[string]struct {
		code errs.Code
		says string
	}{
		"hf://datasets/owner/photo/data/train-000.tar":             {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/phtos/data/*.tar":                     {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/phtos/data/train-{000..001}.tar":      {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/pictures/x.tar":                       {errs.NotFound, "did you mean hf://datasets/other/pictures?"},
		"hf://datasets/photos":                                     {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/photos@mian/data/train-000.tar":       {errs.NotFound, "did you mean @main?"},
		"hf://datasets/owner/photos@refs/convert/parqet/x.parquet": {errs.NotFound, "did you mean @refs%2Fconvert%2Fparquet?"},
		"hf://datasets/owner/photos/dta/train-000.tar":             {errs.NotFound, `did you mean "hf://datasets/owner/photos/data/train-000.tar"?`},
		"hf://datasets/owner/photos/data/trian-000.tar":            {errs.NotFound, `did you mean "hf://datasets/owner/photos/data/train-000.tar"?`},
		"hf://datasets/owner/photos/data/*.npz":                    {errs.NotFound, "has 2 entries: test-000.tar, train-000.tar"},
		"hf://owner/photos/data/train-000.tar":                     {errs.Config, "hf://datasets/OWNER/NAME"},
		"hf://datasets":                                            {errs.NotFound, ""},
	} {
		_, err := pattern.Expand(t.Context(), src, []string{name})
		if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(e.Hint, c.says) {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if _, err := open(t, source.Access{}).Stat(t.Context(), "hf://datasets/owner/photos"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Error(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	for _, bad := range []string{"huggingface.co", "ftp://host", "http://"} {
		t.Setenv("HF_ENDPOINT", bad)
		if _, err := open(t, source.Access{}).Stat(t.Context(), "hf://datasets/owner/photos"); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
