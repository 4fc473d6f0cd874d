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

// plain passes text that moves a terminal's cursor only to the next line or
// tab, because it contains keys and values from data. Not for concurrent use.
type plain struct {
	to   io.Writer
	held []byte // a partial character that the next write continues
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

// flush writes the bytes of an incomplete character.
func (p *plain) flush() error {
	held := errs.AppendPlain(nil, string(p.held))
	p.held = nil
	_, err := p.to.Write(held)
	return err
}

// encode returns v as JSON with a newline, indented for people, else on one line.
// Everything unprintable is escaped, more than JSON requires.
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
