package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Read reads a Spec from JSON. It ignores keys that it does not know. If values
// have the wrong type, the error names every one of them, what was given and what
// is expected.
func Read(raw []byte) (Spec, error) {
	var spec Spec
	err := jsontext.UnmarshalNames(raw, &spec)
	if err == nil {
		spec.Dataset = spec.Dataset.Hidden()
		return spec, nil
	}
	var v values
	if json.Valid(raw) {
		v.walk(raw, reflect.TypeFor[Spec](), "")
	}
	if e := (*errs.Error)(nil); len(v.found) == 0 && errors.As(err, &e) {
		return Spec{}, e
	}
	if len(v.found) == 0 {
		return Spec{}, errs.New(errs.Config, "cannot read the Spec").Because(err)
	}
	out := v.found.Err()
	if v.hint != "" {
		out = errs.From(out).Try("%s", v.hint)
	}
	return Spec{}, out
}

// values collects the values of a document that do not have their key's type.
// encoding/json stops at the first, and does not name the keys above types with
// their own UnmarshalJSON.
type values struct {
	found Problems
	hint  string   // of the first value that has one
	paths []string // of the dataset that is walked
}

// walk compares a value with the type that it should have.
func (v *values) walk(raw json.RawMessage, t reflect.Type, at string) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return // keeps the default
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[Dataset]():
		if raw[0] == '[' {
			t = reflect.TypeFor[[]Dataset]()
		}
	case reflect.TypeFor[Column]():
		if raw[0] == '"' {
			return
		}
	default:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			v.try(raw, t, at)
			return
		}
	}
	var list []json.RawMessage
	var keys map[string]json.RawMessage
	switch {
	case t.Kind() == reflect.Slice && json.Unmarshal(raw, &list) == nil:
		for i, item := range list {
			v.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", at, i))
		}
	case t.Kind() == reflect.Struct && json.Unmarshal(raw, &keys) == nil:
		if t == reflect.TypeFor[source.Storage]() {
			v.secrets(at, keys)
		}
		if t == reflect.TypeFor[Dataset]() {
			v.paths = pathsOf(keys["path"])
		}
		for _, f := range reflect.VisibleFields(t) {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if value, ok := keys[key]; ok && key != "-" {
				v.walk(value, f.Type, strings.TrimPrefix(at+"."+key, "."))
			}
		}
	default:
		v.try(raw, t, at)
	}
}

// try decodes one value. A type with its own UnmarshalJSON describes its errors
// itself, unless it only passes on those of encoding/json.
func (v *values) try(raw json.RawMessage, t reflect.Type, at string) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return
	}
	var e *errs.Error
	if wanted(t) == "" && errors.As(err, &e) {
		v.found = append(v.found, fmt.Sprintf("%s: %s", at, e.What))
		v.hint = cmp.Or(v.hint, e.Hint)
		return
	}
	is := "is " + given(raw)
	if strings.Contains(at+".", "dataset.storage.") || strings.Contains(at, "].storage") { // it may be a secret
		is = "has the wrong type"
	}
	must := Wanted(t, string(raw))
	if strings.HasSuffix(at, "storage.fresh") {
		must = FreshAlways + " (the index is compared with a listing at every opening) or " + FreshNever + " (it is trusted)"
	}
	v.found = append(v.found, fmt.Sprintf("%s %s: it must be %s", cmp.Or(at, "the Spec"), is, must))
}

// secrets refuses keys of a dataset's storage that hold secrets.
func (v *values) secrets(at string, keys map[string]json.RawMessage) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if problem, hint := SecretKey(at, key, v.paths); problem != "" {
			v.found = append(v.found, problem)
			v.hint = cmp.Or(v.hint, hint)
		}
	}
}

// given is a value as an error quotes it: on one line, shortened.
func given(raw []byte) string {
	const most = 60
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		line.Write(raw)
	}
	text := []rune(line.String())
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}

// Wanted describes the valid values of a type, in the words of a Spec, for an error
// about another value.
func Wanted(t reflect.Type, given string) string {
	whole := given != "" && strings.Trim(given[1:], "0123456789") == "" && strings.Trim(given[:1], "-0123456789") == ""
	own := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) // and a range of its own
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		if whole && !own {
			return "a whole number from -2^63 to 2^63 - 1"
		}
	case reflect.Uint64:
		if whole {
			return "a whole number from 0 to 2^64 - 1"
		}
	}
	return cmp.Or(wanted(t), "a value of another type")
}

// wanted is Wanted for one type; "" for types whose own errors say it.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Paths]():
		return "a path, or a list of paths"
	case reflect.TypeFor[Bytes]():
		return `"auto", a number of bytes, or an amount of memory such as "8GiB" or "500MB"`
	case reflect.TypeFor[Connections]():
		return fmt.Sprintf("\"auto\", or a number of connections from 1 to %d", maxConnections)
	case reflect.TypeFor[Rate]():
		return `"none", bytes per second, or text such as "100MB"`
	case reflect.TypeFor[Duration]():
		return `a number of seconds above 0, such as 90, or text such as "10m"; at most "24h"`
	case reflect.TypeFor[Numbers]():
		return "a list of numbers, or the path of a .npy file"
	case reflect.TypeFor[Lengths]():
		return "a list of numbers, the path of a .npy file, or the name of a field"
	case reflect.TypeFor[PadTo]():
		return `"longest", or a length of at least 1`
	case reflect.TypeFor[View]():
		return "[from, to], with null for an open end"
	case reflect.TypeFor[Column]():
		return "a name, or an object with the keys name, from and path"
	case reflect.TypeFor[Dataset]():
		return "an object such as {\"path\": \"data/train\"}, or a list of them"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return ""
		}
		return "an object with keys"
	case reflect.Map:
		return "an object with keys"
	}
	return ""
}
