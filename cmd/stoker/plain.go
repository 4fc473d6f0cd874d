package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// plain lets text through that moves nothing on a terminal but to the next line or
// tab: keys and values out of data are in what is written. Not for concurrent use.
type plain struct {
	to   io.Writer
	held []byte // a character that the next write goes on with
	out  []byte
}

func (p *plain) Write(b []byte) (int, error) {
	if len(p.held) == 0 && !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' && c != '\n' || c > '~' }) {
		return p.to.Write(b)
	}
	text := append(p.held, b...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if tail := text[len(text)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= back
			}
			break
		}
	}
	p.out = errs.AppendPlain(p.out[:0], string(text[:whole]))
	p.held = append([]byte(nil), text[whole:]...)
	if _, err := p.to.Write(p.out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// flush writes what no character has come of.
func (p *plain) flush() error {
	held := errs.AppendPlain(nil, string(p.held))
	p.held = nil
	_, err := p.to.Write(held)
	return err
}

// encode is v as JSON, with a newline; indented for people, else on one line.
// What can not be printed is escaped, which JSON demands of less.
func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	var out []byte
	for _, r := range b.String() {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out, nil
}
