package source_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestNames(t *testing.T) {
	for name, want := range map[string][4]string{ // scheme, Clean, Dir, Join with x/../y
		"/a/b":        {"", "/a/b", "/a", "/a/b/y"},
		"a//b/":       {"", "a/b", "a/b", "a/b/y"},
		"a":           {"", "a", ".", "a/y"},
		"s3://b/k":    {"s3", "s3://b/k", "s3://b", "s3://b/k/y"},
		"s3://b//k/":  {"s3", "s3://b//k", "s3://b//k", "s3://b//k/y"},
		"s3://b//k":   {"s3", "s3://b//k", "s3://b//", "s3://b//k/y"},
		"gs://b/a//k": {"gs", "gs://b/a//k", "gs://b/a//", "gs://b/a//k/y"},
		"az://b/a//":  {"az", "az://b/a", "az://b/a", "az://b/a//y"},
		"s3://b/./k":  {"s3", "s3://b/./k", "s3://b/.", "s3://b/./k/y"},
		"hf://b/./k":  {"hf", "hf://b/k", "hf://b", "hf://b/k/y"},
		"s3://b":      {"s3", "s3://b", "s3://", "s3://b/y"},
		"s3://":       {"s3", "s3://", "s3://", "s3://y"},
		"S3+x.1-://b": {"s3+x.1-", "S3+x.1-://b", "S3+x.1-://", "S3+x.1-://b/y"},
		"1s://b":      {"", "1s:/b", "1s:", "1s:/b/y"},
		"./a://b":     {"", "a:/b", "a:", "a:/b/y"},
		"://b":        {"", ":/b", ":", ":/b/y"},
	} {
		got := [4]string{source.SchemeOf(name), source.Clean(name), source.Dir(name), source.Join(name, "x/..", "y")}
		if name == "a//b/" {
			want[2] = "a/b" // as path.Dir
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"s3://b/x", "s3://b/a/x", "s3://b/a//x", "s3://b//x", "s3://b/a///x", "s3://b/.//x", "s3://b/a/../x"} {
		if got := source.Join(source.Dir(name), path.Base(name)); got != name {
			t.Errorf("%s is in %s: %s", name, source.Dir(name), got)
		}
		dir := name
		for n := 0; dir != "s3://"; n++ {
			if dir = source.Dir(dir); n > len(name) {
				t.Fatalf("%s has no end", name)
			}
		}
	}
	if got := source.Join("s3://b/a//c", "../../x"); got != "s3://b/a/x" {
		t.Errorf("up from s3://b/a//c: %s", got)
	}
	wd, err := os.Getwd()
	stagetest.Must(t, err)
	for name, want := range map[string]string{"a/../b": wd + "/b", "/a/": "/a", "s3://b/../c": "s3://b/../c", "http://b/a/../c": "http://b/c", "file:///x/y": "/x/y", "FILE:///x": "/x"} {
		if got, err := source.Abs(name); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

// The query of a URL is none of its path.
func TestNamesWithAQuery(t *testing.T) {
	for name, want := range map[string][2]string{
		"https://h/a/../b//c.tar?x=1//2/../3": {"https://h/b/c.tar?x=1//2/../3", "https://h/a/../b"},
		"https://h/a//b/?x=1/":                {"https://h/a/b/?x=1/", "https://h/a//b"},
		"https://h?x=/":                       {"https://h?x=/", "https://"},
		"s3://b/a?b/../c":                     {"s3://b/a?b/../c", "s3://b/a?b/.."},
	} {
		if got := source.Clean(name); got != want[0] {
			t.Errorf("Clean(%s) = %s, want %s", name, got, want[0])
		}
		if got := source.Dir(name); source.Clean(got) != source.Clean(want[1]) {
			t.Errorf("Dir(%s) = %s, want %s", name, got, want[1])
		}
	}
}

// Whose host a name is on must be read as the one who connects reads it.
func TestHosts(t *testing.T) {
	w := &source.Written{Names: []string{"https://U:P@Data.example:8443/train/{000..099}.tar", "@https://list", "s3://b/x", "/local", "https://h{1,2}.example/x"}}
	for host, want := range map[string]bool{
		"https://data.example:8443": true, "https://data.example": false, "http://data.example:8443": false,
		"https://list": true, "https://h2.example": true, "https://h3.example": false, "https://evil": false, "https://u": false, "": false, "s3://b": true,
	} {
		if host != "" && w.Host(host) != want {
			t.Errorf("%s: %v", host, !want)
		}
	}
	for name, want := range map[string]string{
		"https://a@b@c/d": "https://c", "https://a/b@c": "https://a", "https://a?@b/c": "https://a", "https://a#@b/": "https://a",
		"file:///x": "", "/x": "", "x": "",
		"abfss://c@a.dfs.core.windows.net/x@y": "abfss://c@a.dfs.core.windows.net", "ABFS://c@a": "ABFS://c@a",
	} {
		if got := source.HostOf(name); got != want {
			t.Errorf("HostOf(%s) = %s, want %s", name, got, want)
		}
	}
	many := &source.Written{}
	for i := range 10_000 {
		many.Names = append(many.Names, fmt.Sprintf("https://h%d.example/{000..099}.tar", i%100))
	}
	if !many.Host("https://H7.example") || many.Host("https://h100.example") {
		t.Error("of many names, others are found")
	}
	if n := testing.AllocsPerRun(10, func() { many.Host("https://other.example") }); n > 1 {
		t.Errorf("each of many requests takes memory %v times to find that a host was not written", n)
	}
	if (*source.Written)(nil).Host("https://data.example") {
		t.Error("nothing was written")
	}
}

func TestOriginsOfAnySpelling(t *testing.T) {
	prefixes := []string{"s3://b/a", "https://h.example:8443/d/", "https://all.example", "/data/x/", "file:///more"}
	for name, want := range map[string]bool{
		"s3://b/a/x": true, "s3://b/a": true, "s3://b/ab": false, "s3://b/a/../c": false, "s3://b": false, "s3://B/a/x": false, "gs://b/a/x": false, "s3://c/a/x": false,
		"https://h.example:8443/d/x": true, "https://H.example:8443/d/x?y=/../..": true, "https://u:p@h.example:8443/d/x": true,
		"https://h.example/d/x": false, "http://h.example:8443/d/x": false, "https://h.example:8443/D/x": false, "https://h.example:8443/d/../e": false,
		"https://h.example:8443/d/%2e%2e/e": false, "https://h.example:8443/d%2fx": false, "s3://b/a/%2e%2e/c": false, "s3://b/a/100%": true, "https://h.example:8443/d/%2E%2E%2fe": false,
		"https://h.example:8443/e//../d/x": false, "https://h.example:8443/d/x/../y": false, "https://h.example:8443/d//x": true, "s3://b/e//../a/x": false, "s3://b/a//x": true, "s3://b/a/..x": true,
		"https://all.example": true, "https://all.example/x": true, "https://all.example.evil/x": false, "https://all.example@evil/x": false, "https://all.example#@evil/x": true,
		"/data/x/y": true, "/data/x": true, "/data/xy": false, "/data/x/../y": false, "file:///data/x/y": true, "/more/x": true, "/etc/passwd": false, "data/x/y": false,
	} {
		if got := source.Under(prefixes, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"/x", "x", "s3://b/x", ""} {
		if source.Under(nil, name) || source.Under([]string{"", "s3://"}, name) {
			t.Errorf("%q is under nothing", name)
		}
	}
}

// Names are shown as in the golden, which Python reads too.
func TestShown(t *testing.T) {
	text, err := os.ReadFile("../../../testdata/shown.json")
	stagetest.Must(t, err)
	var golden struct{ Names map[string]string }
	stagetest.Must(t, json.Unmarshal(text, &golden))
	for given, want := range golden.Names {
		if got := source.Shown(given); got != want {
			t.Errorf("%s is shown as %s, not as %s", given, got, want)
		}
	}
}
