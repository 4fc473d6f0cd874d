package main

import (
	"regexp"
	"strings"
)

// Errors call settings as a Spec does, with a dot or as name=value. Here they are flags
// of the verb, or, for verbs that take a Spec, its keys.

// setting is one of them in a text: dataset.window, batch.size, window=1024,
// dtype="uint32", batch_size.
var setting = regexp.MustCompile(`\b((?:dataset\.storage|dataset|batch|order|deliver|fetch)\.)?([a-z_]+)(=("[^"]*"|[A-Za-z0-9_]+)?)?`)

// ofBench is a flag, and the same of stoker bench, which texts name for verbs without it.
var ofBench = regexp.MustCompile(`--[a-z-]+ \(stoker bench: --[a-z-]+\)`)

// lanes is the one whose name is a usual word.
var lanes = regexp.MustCompile(`\bworkers is (-?\d+)(: it can be 1 to \d+ lanes, or 0 for all)?`)

// renamed are the keys of a Spec whose flags have another name than the key.
var renamed = map[string]string{"batch.size": "batch-size", "batch.global_size": "global-batch-size", "fetch.ahead": "fetch-ahead"}

// asFlags replaces the settings in a text by flags. flags has those of a verb: their
// names, and whether they take no value.
func asFlags(text string, flags map[string]bool) string {
	if _, is := flags["workers"]; is {
		text = lanes.ReplaceAllString(text, "--workers is $1$2")
	}
	text = replace(text, func(prefix, name, value string, given bool) (string, bool) {
		flag, known := renamed[prefix+name]
		if !known {
			flag = strings.ReplaceAll(name, "_", "-")
		}
		alone, is := flags[flag]
		switch {
		case !is || prefix == "" && !given && !strings.Contains(name, "_"):
			return "", false
		case value == "" || alone:
			return "--" + flag, true
		}
		return "--" + flag + " " + strings.Trim(value, `"`), true
	})
	return ofBench.ReplaceAllStringFunc(text, func(both string) string {
		flag, same, _ := strings.Cut(both, " (stoker bench: ")
		if flag+")" != same {
			return both
		}
		return flag
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
		if m[0] > 0 && strings.ContainsRune(`/.-"`, rune(text[m[0]-1])) || ofPath(text[m[1]:]) {
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

// ofPath says whether what follows a name makes it the beginning of a path.
func ofPath(rest string) bool {
	return len(rest) > 0 && (rest[0] == '/' || rest[0] == '-') || len(rest) > 1 && rest[0] == '.' && rest[1] != ' '
}
