package hub

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestWhenSignaturesEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for query, want := range map[string]time.Duration{
		"X-Amz-Date=20260102T000000Z&X-Amz-Expires=3600": time.Hour - time.Minute, // whatever the clock says
		"X-Amz-Expires=100":            90 * time.Second,
		"Expires=1767323045&Policy=x":  0, // 2026-01-02T03:04:05Z: over
		"Expires=1767326645&Policy=x":  time.Hour - time.Minute,
		"Expires=99999999999999999999": 0,
		"X-Amz-Expires=-1":             0,
		"sig=x":                        0,
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := expiry(q, now)
		if want == 0 && !got.IsZero() || want != 0 && got.Sub(now) != want {
			t.Errorf("%s: %v, want %v later than %v", query, got, want, now)
		}
	}
}

func TestWhenALimitIsReset(t *testing.T) {
	for header, want := range map[string]time.Duration{
		`"api";r=0;t=55`: 55 * time.Second, `"api";r=0; t=55`: 55 * time.Second, `"api";r=9;t=55`: 0, "": 0, `r=0;t=99999999999`: 999999 * time.Second,
	} {
		if got := reset(http.Header{"Ratelimit": {header}}); got != want {
			t.Errorf("%s: %v, want %v", header, got, want)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, name := range []string{"hf://datasets/o/n@refs/pr/1/x", "hf://datasets/n/x", "hf://datasets/o/n@a%2Fb/x@y", "hf://datasets/o@/n@@/", "hf://x", "hf://datasets/o/n@%zz/x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		name := "hf://" + strings.TrimPrefix(rest, "hf://")
		all, err := cut(name)
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%q: %v, %v", name, all, err)
		}
		for _, r := range all {
			whole := r.root
			if r.path != "" {
				whole += "/" + r.path
			}
			if whole != strings.TrimRight(name, "/") && !strings.HasPrefix(strings.TrimRight(name, "/"), whole) {
				t.Errorf("%q is cut into %+v", name, r)
			}
			if strings.Contains(r.repo, "..") && !part.MatchString(strings.ReplaceAll(r.repo, "/", "")) || r.revision == "" {
				t.Errorf("%q: %+v", name, r)
			}
		}
	})
}

func FuzzListing(f *testing.F) {
	f.Add(`[{"type": "file", "path": "a/x", "size": 1, "oid": "0123456789012345678901234567890123456789"}]`, `<https://h/x?cursor=a>; rel="next"`, "a")
	f.Add(`[{"type": "file", "path": "x", "size": 1, "oid": "0", "lfs": {"oid": "0123456789012345678901234567890123456789", "size": 2}}]`, `<>; rel="next"`, "")
	f.Fuzz(func(t *testing.T, body, link, dir string) {
		_, _ = next(http.Header{"Link": {link}})
		var page []file
		if json.Unmarshal([]byte(body), &page) != nil {
			return
		}
		for _, flat := range []bool{true, false} {
			l := &listing{of: folder{dir, flat}}
			all, err := l.entriesOf(page)
			if err != nil {
				continue
			}
			for _, e := range all {
				if dir != "" && !strings.HasPrefix(e.path, dir+"/") || e.size < 0 || !e.dir && !isHash(e.version) || strings.Contains("/"+e.path+"/", "/../") {
					t.Errorf("%+v of %q", e, dir)
				}
			}
		}
	})
}

// What comparing a whole file with its hash costs.
func BenchmarkHolds(b *testing.B) {
	p := make([]byte, 1<<20)
	for _, version := range []string{strings.Repeat("0", 64), strings.Repeat("0", 40)} {
		b.Run(version[:len(version)/8], func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				holds(version, p)
			}
		})
	}
}
