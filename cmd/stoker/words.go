package main

import (
	"reflect"
	"regexp"
	"strings"
)

// Errors call the settings of a dataset as a Spec does, name=value. Here they are
// flags, or, for verbs that take a Spec, its keys.

// setting is one of them in a text: dataset.window, window=1024, dtype="uint32".
var setting = regexp.MustCompile(`\b(dataset\.)?([a-z_]+)(=("[^"]*"|[A-Za-z0-9_]+)?)?`)

// asFlags writes a text with flags in the place of settings.
func asFlags(text string) string {
	flags := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[dataFlags]()) {
		name := f.Tag.Get("name")
		if name == "" {
			name = kebab(f.Name)
		}
		flags[name] = f.Type.Kind() == reflect.Bool
	}
	return replace(text, func(prefix, name, value string, given bool) (string, bool) {
		name = strings.ReplaceAll(name, "_", "-")
		alone, is := flags[name]
		switch {
		case !is || prefix == "" && !given:
			return "", false
		case value == "" || alone:
			return "--" + name, true
		}
		return "--" + name + " " + strings.Trim(value, `"`), true
	})
}

// asKeys writes a text with a Spec's keys in their place, and says whether it did.
func asKeys(text string) (string, bool) {
	found := false
	out := replace(text, func(prefix, name, value string, given bool) (string, bool) {
		if !given {
			return "", false
		}
		found = true
		switch {
		case name == "documents":
			return "window: {documents: true}", true
		case name == "eos" || name == "bos":
			return strings.TrimSpace("window: {documents: true, "+name+": "+value) + "}", true
		}
		return strings.TrimSpace(name + ": " + value), true
	})
	return out, found
}

func replace(text string, with func(prefix, name, value string, given bool) (string, bool)) string {
	var b strings.Builder
	last := 0
	for _, m := range setting.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		if m[0] > 0 && strings.ContainsRune(`/.-"`, rune(text[m[0]-1])) { // of a path
			continue
		}
		if new, ok := with(part(1), part(2), part(4), m[6] >= 0); ok {
			b.WriteString(text[last:m[0]])
			b.WriteString(new)
			last = m[1]
		}
	}
	return b.String() + text[last:]
}

// kebab is what kong calls the flag of a field.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
