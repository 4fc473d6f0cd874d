package web

import (
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// machine is an entry of .netrc.
type machine struct {
	host            string // "": the default
	login, password string
}

// parseNetrc reads the words of a .netrc, as curl and ftp do: machine NAME or default, then
// login, password and account with a word each. A word may be in quotes, "#" at the
// beginning of a word starts a comment, and macdef goes on to the next empty line.
// Entries of the same machine are tried from the first one on. Errors never repeat a word.
func parseNetrc(text string) (all []machine, err error) {
	r := &words{text: text, line: 1}
	for {
		key, ok := r.next()
		if !ok {
			break
		}
		switch key {
		case "machine", "login", "user", "password", "account":
			line := r.line
			value, ok := r.next()
			switch {
			case !ok:
				return nil, errs.New(errs.Config, "line %d: the word after %s is missing", line, key)
			case key == "machine":
				all = append(all, machine{host: value})
			case len(all) == 0:
				return nil, errs.New(errs.Config, "line %d: there is a %s before the first machine", line, key)
			case key == "password":
				all[len(all)-1].password = value
			case key != "account":
				all[len(all)-1].login = value
			}
		case "default":
			all = append(all, machine{})
		case "macdef":
			r.skipMacro()
		default:
			return nil, errs.New(errs.Config, "line %d: there is a word other than machine, default, login, password, account or macdef", r.line)
		}
	}
	return all, nil
}

// words are those of a .netrc.
type words struct {
	text string
	line int
}

func (w *words) next() (word string, ok bool) {
	for {
		w.text = strings.TrimLeftFunc(w.text, func(r rune) bool {
			if r == '\n' {
				w.line++
			}
			return r == ' ' || r == '\t' || r == '\r' || r == '\n'
		})
		if !strings.HasPrefix(w.text, "#") {
			break
		}
		_, w.text, _ = strings.Cut(w.text, "\n")
		w.line++
	}
	if w.text == "" {
		return "", false
	}
	if w.text[0] == '"' {
		return w.quoted(), true
	}
	end := strings.IndexAny(w.text, " \t\r\n")
	if end < 0 {
		end = len(w.text)
	}
	word, w.text = w.text[:end], w.text[end:]
	return word, true
}

// quoted is a word in quotes, in which a backslash escapes the next character.
func (w *words) quoted() string {
	var b strings.Builder
	i := 1
	for ; i < len(w.text) && w.text[i] != '"'; i++ {
		if w.text[i] == '\\' && i+1 < len(w.text) {
			i++
			switch w.text[i] {
			case 'n':
				b.WriteByte('\n')
				continue
			case 't':
				b.WriteByte('\t')
				continue
			case 'r':
				b.WriteByte('\r')
				continue
			}
		}
		b.WriteByte(w.text[i])
	}
	w.text = w.text[min(i+1, len(w.text)):]
	return b.String()
}

// skipMacro goes to the next empty line.
func (w *words) skipMacro() {
	before, after, _ := strings.Cut(w.text, "\n\n")
	w.line += strings.Count(before, "\n") + 2
	w.text = after
}
