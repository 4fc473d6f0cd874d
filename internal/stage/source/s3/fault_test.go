package s3_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// What passes is tried again, and nobody notices.
func TestFaultsThatPass(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	server.Put("d/x", []byte(strings.Repeat("0123456789", 1000)))
	for name, answer := range map[string]func(w http.ResponseWriter){
		"SlowDown":      func(w http.ResponseWriter) { refuse(w, 503, "SlowDown", "Please reduce your request rate.") },
		"429":           func(w http.ResponseWriter) { w.WriteHeader(429) },
		"Throttling":    func(w http.ResponseWriter) { refuse(w, 400, "ThrottlingException", "Rate exceeded") },
		"InternalError": func(w http.ResponseWriter) { refuse(w, 500, "InternalError", "We encountered an internal error.") },
		"502":           func(w http.ResponseWriter) { w.WriteHeader(502) },
		"504":           func(w http.ResponseWriter) { w.WriteHeader(504) },
		"RequestTimeout": func(w http.ResponseWriter) {
			refuse(w, 400, "RequestTimeout", "Your socket connection was not read from.")
		},
		"a reset": func(w http.ResponseWriter) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = c.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var met, fail atomic.Int32
			front(t, server, func(w http.ResponseWriter, _ *http.Request) bool {
				if fail.Add(-1) >= 0 {
					met.Add(1)
					answer(w)
					return true
				}
				return false
			}, nil)
			src := reach(t, source.Access{})
			fail.Store(1)
			st := stat(t, src, "s3://data/d/x")
			p := make([]byte, 100)
			stagetest.Must(t, src.ReadAt(t.Context(), st, p, 55)) // its retries come from the next second's allowance
			if string(p[:5]) != "56789" || met.Load() != 1 {
				t.Errorf("%q was read; the fault was met %d times", p[:5], met.Load())
			}
		})
	}
}

// A body that breaks is gone on with where it broke, with the same condition.
func TestBodyThatBreaks(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	data := strings.Repeat("0123456789", 10000)
	server.Put("x", []byte(data))
	var breaks atomic.Int32
	ranges := make(chan string, 10)
	front(t, server, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			ranges <- r.Header.Get("Range") + " " + r.Header.Get("If-Match")
		}
		return false
	}, func(r *http.Response) {
		if r.Request.Method == http.MethodGet && breaks.Add(1) == 1 {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, 50_000), failing{}))
		}
	})
	src := reach(t, source.Access{})
	st := stat(t, src, "s3://data/x")
	p := make([]byte, len(data))
	stagetest.Must(t, src.ReadAt(t.Context(), st, p, 0))
	if string(p) != data || breaks.Load() != 2 {
		t.Errorf("the bytes are wrong, or were read in %d requests", breaks.Load())
	}
	if first, second := <-ranges, <-ranges; first != "bytes=0-99999 "+st.Version || !strings.HasSuffix(second, "-99999 "+st.Version) || strings.HasPrefix(second, "bytes=0-") {
		t.Errorf("the requests were %q and %q", first, second)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A store that stays away is an error when the deadline has passed, with what happened.
func TestFaultsThatStay(t *testing.T) {
	f := newFake(t, map[string][]byte{"x": []byte("x")})
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, 503, "SlowDown", "Please reduce your request rate.")
		return true
	}
	_, err := source.Names(t.Context(), reach(t, source.Access{Deadline: time.Second / 4}), "s3://some-bucket/x")
	if errs.CodeOf(err) != errs.Throttled || !strings.Contains(err.Error(), "503 SlowDown") {
		t.Errorf("SlowDown: %v", err)
	}
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, 403, "InvalidObjectState", "The operation is not valid for the object's storage class")
		return true
	}
	_, err = reach(t, source.Access{}).Stat(t.Context(), "s3://some-bucket/x")
	if e := errs.From(err); e.Code != errs.Unreadable || !strings.Contains(e.Hint, "restore") {
		t.Errorf("an archived object: %v", err)
	}
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, 400, "KMS.DisabledException", strings.Repeat("the key fakefakesecret is disabled ", 100))
		return true
	}
	_, err = reach(t, source.Access{}).Stat(t.Context(), "s3://some-bucket/x")
	if errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "KMS.DisabledException") || strings.Contains(err.Error(), "fakefakesecret") || len(err.Error()) > 600 {
		t.Errorf("another refusal: %v", err)
	}
}

// Listings that are not what was asked for end with an error, and none goes on for ever.
func TestListingsThatAreWrong(t *testing.T) {
	listing := func(format string, a ...any) string {
		return "<ListBucketResult>" + fmt.Sprintf(format, a...) + "</ListBucketResult>"
	}
	key := func(key string) string { return "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>" }
	var pages atomic.Int32
	for name, c := range map[string]struct {
		answer func() string
		want   string
	}{
		"the same token again": {func() string {
			return listing("<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>%s", key(fmt.Sprintf("d/%06d", pages.Load())))
		}, "same page twice"},
		"the same entries again": {func() string {
			return listing("<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>%s", pages.Load(), key("d/a"))
		}, "not in order"},
		"no token":           {func() string { return listing("<IsTruncated>true</IsTruncated>%s", key("d/a")) }, "how to request"},
		"out of order":       {func() string { return listing("%s%s", key("d/b"), key("d/a")) }, "not in order"},
		"another folder":     {func() string { return listing("%s", key("e/a")) }, "not of this folder"},
		"too deep":           {func() string { return listing("%s", key("d/a/b")) }, "not of this folder"},
		"a negative size":    {func() string { return listing("<Contents><Key>d/a</Key><Size>-1</Size></Contents>") }, "not of this folder"},
		"a folder elsewhere": {func() string { return listing("<CommonPrefixes><Prefix>e/</Prefix></CommonPrefixes>") }, "not of this folder"},
		"a folder that is none": {func() string {
			return listing("<CommonPrefixes><Prefix>d/a</Prefix></CommonPrefixes>")
		}, "not of this folder"},
		"not encoded": {func() string { return listing("<EncodingType>url</EncodingType>%s", key("d/%zz")) }, "wrongly encoded"},
		"cut":         {func() string { return "<ListBucketResult>" + key("d/a") }, "not a listing"},
		"a page":      {func() string { return "<html><body>Sign in</body></html>" }, "not a listing"},
		"nothing":     {func() string { return "" }, "not a listing"},
		"a size that is a word": {func() string {
			return listing("<Contents><Key>d/a</Key><Size>large</Size></Contents>")
		}, "not a listing"},
		"entities": {func() string {
			return `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>` + listing("%s", key("d/&b;"))
		}, "not a listing"},
		"endless": {func() string { return listing("%s", strings.Repeat(" ", 17<<20)) }, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, nil)
			pages.Store(0)
			f.before = func(w http.ResponseWriter, _ *http.Request) bool {
				pages.Add(1)
				_, _ = io.WriteString(w, c.answer())
				return true
			}
			var err error
			deadline := time.Second / 4
			if name == "endless" {
				deadline = time.Minute // it is read to its limit, which is not tried again
			}
			for _, err = range reach(t, source.Access{Deadline: deadline}).List(t.Context(), "s3://some-bucket/d") {
				if err != nil {
					break
				}
			}
			if code := errs.CodeOf(err); err == nil || code != errs.Unreadable && code != errs.Unreachable || !strings.Contains(err.Error(), c.want) || pages.Load() > 20 {
				t.Errorf("after %d pages: %v", pages.Load(), err)
			}
		})
	}
}

// A store that refuses conditions of what has not changed gets none for that bucket. One such
// answer says nothing of other buckets, nor of AWS; and none follows from a range that is
// refused.
func TestConditionsThatAreRefused(t *testing.T) {
	t.Run("another store", func(t *testing.T) {
		conditions(t, newFake(t, map[string][]byte{"x": []byte("0123456789")}), "loose")
	})
	t.Run("AWS", func(t *testing.T) {
		f := newFake(t, map[string][]byte{"x": []byte("0123456789")})
		amazon.serve(t, f, "strict.s3.us-east-1.amazonaws.com", "other.s3.us-east-1.amazonaws.com")
		conditions(t, f, "")
	})
}

// conditions reads of two buckets, of which the first refuses one condition, and the other one
// range. loose is the bucket that gets no conditions after that.
func conditions(t *testing.T, f *fake, loose string) {
	t.Helper()
	first := "strict"
	if loose != "" {
		first = loose
	}
	of := func(r *http.Request) string {
		if host, _, aws := strings.Cut(r.Host, ".s3."); aws {
			return host
		}
		return strings.Split(r.URL.Path, "/")[1]
	}
	var refused, unsatisfied atomic.Int32
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Header.Get("If-Match") == "":
			return false
		case of(r) == first && refused.Add(1) == 1:
			refuse(w, 412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
			return true
		case of(r) != first && unsatisfied.Add(1) == 1:
			refuse(w, 416, "InvalidRange", "The requested range is not satisfiable")
			return true
		}
		return false
	}
	src := reach(t, source.Access{})
	for _, bucket := range []string{first, "other", "other", first} {
		st := stat(t, src, "s3://"+bucket+"/x")
		before, p := len(f.requests()), make([]byte, 4)
		stagetest.Must(t, src.ReadAt(t.Context(), st, p, 3))
		if string(p) != "3456" {
			t.Errorf("%q of %s", p, bucket)
		}
		seen := f.requests()[before:]
		if last := seen[len(seen)-1]; (last.Header.Get("If-Match") == "") != (bucket == loose) {
			t.Errorf("the request to %s has the condition %q", bucket, last.Header.Get("If-Match"))
		}
	}
	if refused.Load() == 0 || unsatisfied.Load() == 0 {
		t.Error("a refusal was not met")
	}
}
