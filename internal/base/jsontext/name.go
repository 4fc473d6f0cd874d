package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Name is the name of a file, or part of one. In JSON, a byte that is not UTF-8 is
// the lone surrogate \udcXX, which Python's os.fsencode converts back (PEP 383).
type Name string

// MarshalJSON writes the name as one JSON string.
func (n Name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	out := []byte{'"'}
	for rest := string(n); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size == 1 {
			out = fmt.Appendf(out, `\udc%02x`, rest[0])
		} else {
			part, err := json.Marshal(rest[:size])
			if err != nil {
				return nil, err
			}
			out = append(out, part[1:len(part)-1]...)
		}
		rest = rest[size:]
	}
	return append(out, '"'), nil
}

// UnmarshalJSON reads what MarshalJSON writes. It rejects a surrogate that does not
// encode a byte.
func (n *Name) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' || Check(b) == nil {
		return json.Unmarshal(b, (*string)(n))
	}
	if !utf8.Valid(b) {
		return Check(b)
	}
	var bad rune
	text := unquote(nil, b, func(dst []byte, r rune) []byte {
		if r < 0xDC80 || r > 0xDCFF {
			bad = r
		}
		return append(dst, byte(r))
	})
	if bad != 0 {
		return &Error{bytes.Index(bytes.ToLower(b), fmt.Appendf(nil, `\u%04x`, bad)), fmt.Sprintf(`\u%04x is half a surrogate pair`, bad)}
	}
	*n = Name(text)
	return nil
}

// Names converts texts to names.
func Names(texts []string) []Name {
	if texts == nil {
		return nil
	}
	out := make([]Name, len(texts))
	for i, t := range texts {
		out[i] = Name(t)
	}
	return out
}

// Texts converts names to texts.
func Texts(names []Name) []string {
	if names == nil {
		return nil
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return out
}

// mark announces that the next character is the number of a byte, between the two
// steps of UnmarshalNames. It is a noncharacter, and in no text.
const mark = '\ufdd0'

// UnmarshalNames is json.Unmarshal for values with names of files: every text is
// read as a Name. Texts in a json.RawMessage stay unchanged.
func UnmarshalNames(b []byte, v any) error {
	if Check(b) == nil {
		return json.Unmarshal(b, v)
	}
	marked, err := markBytes(b)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(marked, v); err != nil {
		return err
	}
	restore(reflect.ValueOf(v))
	return nil
}

// markBytes is b with every byte of a name that is not UTF-8 as mark and that byte.
func markBytes(b []byte) ([]byte, error) {
	if !utf8.Valid(b) || bytes.ContainsRune(b, mark) || bytes.Contains(bytes.ToLower(b), []byte(`\ufdd0`)) {
		return nil, Check(b) // which was called before, and is not nil
	}
	out := make([]byte, 0, 2*len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			i++
			continue
		}
		r, n := escape(b[i:])
		switch {
		case n == 6 && r >= 0xDC80 && r <= 0xDCFF:
			out = fmt.Appendf(out, `\ufdd0\u%04x`, r&0xFF)
		case n > 0 && utf16.IsSurrogate(r):
			return nil, &Error{i, fmt.Sprintf("%s is half a surrogate pair", b[i:i+6])}
		default:
			n = max(n, 2)
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	return out, nil
}

// restore puts the bytes back that markBytes has marked.
func restore(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			restore(v.Elem())
		}
	case reflect.Interface:
		if text, ok := v.Interface().(string); ok && v.CanSet() {
			v.Set(reflect.ValueOf(unmark(text)))
		} else if !v.IsNil() {
			restore(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanInterface() { // others are not from JSON
				restore(f)
			}
		}
	case reflect.Slice:
		if raw, ok := v.Interface().(json.RawMessage); ok {
			v.SetBytes(bytes.ReplaceAll(raw, []byte(`\ufdd0\u00`), []byte(`\udc`)))
			return
		}
		for i := range v.Len() {
			restore(v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(it.Key())
			value.Set(it.Value())
			v.SetMapIndex(it.Key(), reflect.Value{})
			restore(key)
			restore(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(unmark(v.String()))
		}
	}
}

func unmark(s string) string {
	if !strings.ContainsRune(s, mark) {
		return s
	}
	var out []byte
	byteNext := false
	for _, r := range s {
		switch {
		case r == mark:
			byteNext = true
		case byteNext:
			out, byteNext = append(out, byte(r)), false
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}
