package web

import (
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// login finds credentials: a user in the URL, the token whose variable the Spec names, or
// .netrc, in this order. Each goes to hosts that its owner meant: the first to the host of
// the URL, the token to hosts that the user wrote himself, entries of .netrc to the machine
// that they name and its default entry to hosts that the user wrote himself.
type login struct {
	access source.Access
	once   sync.Once
	file   string // .netrc
	netrc  []machine
	err    error
}

// sent are the credentials of one request.
type sent struct {
	value string // of the header Authorization; "": none. Never shown
	what  string // what that is, and where it came from
}

func (s sent) describe() string {
	switch {
	case s.value != "":
		return "with " + s.what
	case s.what != "":
		return "without credentials (" + s.what + ")"
	}
	return "without credentials"
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// of are the credentials for a name whose URL is u.
func (l *login) of(name string, u *url.URL) (sent, error) {
	if l.access.Storage.Anonymous {
		return sent{what: "dataset.storage.anonymous is set"}, nil
	}
	if u.User != nil {
		password, _ := u.User.Password()
		return sent{basic(u.User.Username(), password), "the user name and password of the URL"}, nil
	}
	written := func() bool { return l.access.Written.Host(u.Scheme + "://" + u.Host) }
	why := ""
	if variable := l.access.Storage.TokenEnv; variable != "" && !written() {
		why = "the token of " + variable + " is sent only to hosts that dataset.path or dataset.origins name"
	} else if variable != "" {
		token := strings.TrimSpace(os.Getenv(variable))
		if token == "" {
			return sent{}, errs.New(errs.Config, "the environment variable %s, which dataset.storage.token_env names, is not set", variable).At(at(name)).
				Try("export %s with the token where the program runs, or leave token_env out", variable)
		}
		value := "Bearer " + token
		if !plain(value) {
			return sent{}, errs.New(errs.Config, "the environment variable %s has characters that cannot be part of a token", variable).At(at(name)).
				Try("export %s with the token alone", variable)
		}
		return sent{value, "the token of the environment variable " + variable}, nil
	}
	l.once.Do(l.read)
	if l.err != nil {
		return sent{}, remote.Located(l.err, name)
	}
	for _, m := range l.netrc {
		if m.host != "" && strings.EqualFold(m.host, u.Hostname()) {
			return sent{basic(m.login, m.password), "the entry of this host in " + l.file}, nil
		}
		if m.host == "" && written() {
			return sent{basic(m.login, m.password), "the default entry of " + l.file}, nil
		}
	}
	return sent{what: why}, nil
}

// plain says whether a text may be the value of a header.
func plain(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' })
}

// mostNetrc is more than any such file has.
const mostNetrc = 1 << 20

// read reads .netrc once. NETRC names it, and must then be a file; ~/.netrc may be missing.
func (l *login) read() {
	l.file = os.Getenv("NETRC")
	named := l.file != ""
	if !named {
		home, err := os.UserHomeDir()
		if err != nil {
			return
		}
		l.file = filepath.Join(home, ".netrc")
	}
	if l.file == os.DevNull {
		return
	}
	text, err := source.ReadFile(l.file)
	switch {
	case err == nil && len(text) > mostNetrc:
		err = errs.New(errs.Config, "it has more than %d bytes", mostNetrc)
	case err == nil:
		l.netrc, err = parseNetrc(string(text))
	case os.IsNotExist(err) && !named:
		return
	}
	if err != nil {
		l.err = errs.New(errs.Config, "the file of user names and passwords cannot be read").At(at(l.file)).Because(err).
			Try("correct it, or set NETRC to another file; NETRC=/dev/null means none")
	}
}
