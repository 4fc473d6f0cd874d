package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
)

// Index pages are data: anybody may have written them, and nothing in them is believed but
// that it names what is directly below the folder. What else a page links is left out;
// a name that no file can have is an error, because a dataset must not become smaller
// without a word.

const (
	mostIndex   = 512 << 20 // bytes of a page
	mostEntries = 2_000_000
	mostNames   = 256 << 20 // bytes of all names
	mostName    = 1024      // bytes of a name
	mostToken   = 1 << 20   // bytes of one tag, or of one member of JSON
)

// pageError is why a page is not an index.
type pageError struct {
	what, hint string
	cut        bool // its end is missing
}

func (e *pageError) Error() string { return e.what }

const listInstead = "name the files with braces ({000..099}), or in a list: @https://HOST/LIST.txt, one URL per line"

func notIndex(format string, a ...any) error {
	return &pageError{what: fmt.Sprintf(format, a...), hint: listInstead}
}

var (
	errTooLong = &pageError{what: "its index page is longer than that of two million files", hint: "distribute the files over several folders"}
	errNoEnd   = &pageError{what: "its index page has no end", hint: "check the server and any proxies", cut: true}
	errCutJSON = &pageError{what: errNoEnd.what, hint: errNoEnd.hint, cut: true}
)

// readIndex reads the index page at an address: the names directly below it as they are
// written in a URL, those of folders with a slash at the end, in byte order. Errors are
// *pageError, or what the reader returned. ended says that the page was seen to be whole.
func readIndex(contentType string, page *url.URL, r io.Reader) (names []string, ended bool, err error) {
	in := &bounded{r: r, left: mostIndex}
	x := &index{page: page, base: page}
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case "application/json", "text/json":
		err = x.readJSON(in)
	case "text/html", "application/xhtml+xml":
		err = x.readHTML(in)
	default:
		return nil, false, notIndex("the server shows no index page for it, but an answer of the type %q", errs.Name(contentType))
	}
	if err != nil {
		return nil, false, err
	}
	slices.Sort(x.names)
	return slices.Compact(x.names), x.ended, nil
}

// bounded fails after a number of bytes.
type bounded struct {
	r    io.Reader
	left int64
	read int64
	// done is how many bytes were used; nil: all. What is read beyond is bounded too.
	done  func() int64
	ended bool // r has ended, and not failed
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 || b.done != nil && b.read-b.done() > mostToken {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.read += int64(n)
	b.ended = err == io.EOF
	return n, err
}

// index is what has been found on a page so far.
type index struct {
	page  *url.URL
	base  *url.URL // of links
	names []string
	bytes int
	ended bool // the end of the page was seen
}

// add adds a name that is not yet written as in a URL.
func (x *index) add(name string, dir bool) error {
	switch {
	case name == "" || name == "." || name == "..":
		return nil
	case len(name) > mostName:
		return notIndex("its index page has a name of %d bytes", len(name))
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' }):
		return notIndex("its index page has the name %s, which cannot be that of a file", errs.Name(name))
	}
	name = escapes.Replace(name)
	if dir {
		name += "/"
	}
	if x.bytes += len(name); len(x.names) >= mostEntries || x.bytes > mostNames {
		return errTooLong
	}
	x.names = append(x.names, name)
	return nil
}

// escapes are those of names in a listing: all others would only make them harder to read.
var escapes = strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23")

// readJSON reads what nginx shows with "autoindex_format json", and Caddy: an array of
// objects with "name", and "type" ("directory") or "is_dir" or a slash at the end of the
// name. Their sizes and times are not used: see Source.List.
func (x *index) readJSON(in *bounded) error {
	d := json.NewDecoder(in)
	in.done = d.InputOffset
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return ofJSON(in, err)
	}
	for d.More() {
		var entry struct {
			Name json.RawMessage `json:"name"` // bytes that are not UTF-8 are kept
			Type string          `json:"type"`
			Dir  bool            `json:"is_dir"`
		}
		if err := d.Decode(&entry); err != nil {
			return ofJSON(in, err)
		}
		if len(entry.Name) < 2 || entry.Name[0] != '"' {
			return ofJSON(in, nil)
		}
		name, slash := strings.CutSuffix(string(jsontext.Unquote(nil, entry.Name)), "/")
		if err := x.add(name, slash || entry.Dir || entry.Type == "directory"); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return ofJSON(in, err)
	}
	x.ended = true
	return nil
}

// ofJSON is the error of JSON that is not an index; err is what the decoder said, or nil.
func ofJSON(in *bounded, err error) error {
	var (
		own    *pageError
		syntax *json.SyntaxError
		kind   *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && in.ended:
		return errCutJSON
	case err == nil, errors.As(err, &syntax), errors.As(err, &kind):
		return notIndex("its JSON is not a list of objects with a name and a type, as nginx writes it")
	}
	return err
}

// readHTML reads the links of a page.
func (x *index) readHTML(in *bounded) error {
	z := html.NewTokenizer(in)
	z.SetMaxBuf(mostToken)
	based := false
	for {
		switch z.Next() {
		case html.ErrorToken:
			switch err := z.Err(); {
			case errors.Is(err, html.ErrBufferExceeded):
				return notIndex("its index page has a tag or a text of more than %d bytes", mostToken)
			case !errors.Is(err, io.EOF):
				return err
			}
			return nil
		case html.EndTagToken:
			tag, _ := z.TagName()
			x.ended = x.ended || slices.Contains([]string{"html", "body", "pre"}, string(tag))
		case html.StartTagToken, html.SelfClosingTagToken:
			tag, more := z.TagName()
			name := string(tag)
			if name != "a" && name != "base" {
				continue
			}
			href, ok := hrefOf(z, more)
			switch {
			case !ok:
			case name == "base" && !based:
				based = true
				if u := x.resolve(href); u != nil {
					x.base = u
				}
			case name == "a":
				if err := x.link(href); err != nil {
					return err
				}
			}
		}
	}
}

func hrefOf(z *html.Tokenizer, more bool) (href string, ok bool) {
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		if string(key) == "href" && !ok {
			href, ok = string(value), true
		}
	}
	return href, ok
}

// link adds the target of a link, if that is directly below the page.
func (x *index) link(href string) error {
	href = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1 // as browsers do
		}
		return r
	}, strings.TrimSpace(href))
	u := x.resolve(href)
	if u == nil || u.Opaque != "" || u.Scheme != x.page.Scheme || !strings.EqualFold(u.Host, x.page.Host) || u.RawQuery != "" || u.ForceQuery {
		return nil
	}
	folder, below := strings.Split(x.page.EscapedPath(), "/"), strings.Split(u.EscapedPath(), "/")
	folder = folder[:len(folder)-1] // what is after the last slash is the page
	dir := len(below) == len(folder)+2 && below[len(below)-1] == ""
	if !dir && len(below) != len(folder)+1 {
		return nil
	}
	for i, part := range folder {
		if decoded(part) != decoded(below[i]) {
			return nil
		}
	}
	return x.add(decoded(below[len(folder)]), dir)
}

// resolve is the URL of a link; nil: it is none of a file. Servers that do not escape names
// are many.
func (x *index) resolve(href string) *url.URL {
	if u, err := x.base.Parse(href); err == nil {
		return u
	}
	href = escapeStray(href)
	if u, err := x.base.Parse(href); err == nil {
		return u
	}
	if u, err := x.base.Parse("./" + href); err == nil { // a colon in a name is not after a scheme
		return u
	}
	return nil
}

// escapeStray escapes percent signs that begin no escape, and control bytes.
func escapeStray(href string) string {
	var b strings.Builder
	for i := range len(href) {
		switch c := href[i]; {
		case c == '%' && (i+2 >= len(href) || !hex(href[i+1]) || !hex(href[i+2])), c < ' ', c == 0x7f:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func decoded(part string) string {
	if s, err := url.PathUnescape(part); err == nil {
		return s
	}
	return part
}
