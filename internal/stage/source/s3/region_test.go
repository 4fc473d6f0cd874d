package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// hosts are those that requests went to, and the regions that they were signed for.
func hosts(f *fake) (all []string) {
	for _, r := range f.requests() {
		scope := strings.Split(r.Header.Get("Authorization"), "/")
		region := ""
		if len(scope) > 2 {
			region = " " + scope[2]
		}
		all = append(all, r.Method+" "+r.Host+region)
	}
	return all
}

// A bucket of AWS is a part of the host's name, in the region that is set.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		env    map[string]string
		bucket string
		want   string
	}{
		{nil, "photos", "photos.s3.us-east-1.amazonaws.com us-east-1"},
		{nil, "pho.tos", "s3.us-east-1.amazonaws.com us-east-1"},
		{nil, "Old_Photos", "s3.us-east-1.amazonaws.com us-east-1"},
		{map[string]string{"AWS_REGION": "eu-west-3"}, "photos", "photos.s3.eu-west-3.amazonaws.com eu-west-3"},
		{map[string]string{"AWS_REGION": "cn-north-1"}, "photos", "photos.s3.cn-north-1.amazonaws.com.cn cn-north-1"},
		{map[string]string{"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "photos", "photos.s3.dualstack.us-east-1.amazonaws.com us-east-1"},
		{map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, "photos", "photos.s3-fips.us-east-1.amazonaws.com us-east-1"},
		{map[string]string{"AWS_ENDPOINT_URL_S3": "https://s3.eu-west-3.amazonaws.com"}, "photos", "photos.s3.eu-west-3.amazonaws.com us-east-1"},
		{map[string]string{"AWS_ENDPOINT_URL": "https://s3.example.com", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "photos", "photos.s3.us-east-1.amazonaws.com us-east-1"},
		{map[string]string{"AWS_ENDPOINT_URL": "https://s3.example.com"}, "photos", "s3.example.com us-east-1"},
	} {
		f := &fake{}
		f.before = func(w http.ResponseWriter, r *http.Request) bool {
			if path := map[bool]string{true: "/x", false: "/" + c.bucket + "/x"}[strings.HasPrefix(r.Host, c.bucket+".")]; r.URL.Path != path {
				t.Errorf("%s%s was asked for, want %s", r.Host, r.URL.Path, path)
			}
			w.Header().Set("Content-Length", "1")
			return true
		}
		host, _, _ := strings.Cut(c.want, " ")
		amazon.serve(t, f, host)
		for name, value := range c.env {
			t.Setenv(name, value)
		}
		if st := stat(t, reach(t, source.Access{}), "s3://"+c.bucket+"/x"); st.Size != 1 {
			t.Errorf("%+v", st)
		}
		if got := hosts(f); !slices.Equal(got, []string{"HEAD " + c.want}) {
			t.Errorf("%s with %v: the requests are %q, want HEAD %s", c.bucket, c.env, got, c.want)
		}
		for name := range c.env {
			t.Setenv(name, "")
		}
	}
}

// A bucket that is elsewhere says where; requests are signed anew for that region, and go
// there from then on.
func TestRegionIsFoundOut(t *testing.T) {
	const home = "photos.s3.us-east-1.amazonaws.com"
	const there = "photos.s3.eu-west-1.amazonaws.com"
	answers := map[string]func(w http.ResponseWriter){
		"301": func(w http.ResponseWriter) {
			w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
			refuse(w, 301, "PermanentRedirect", "elsewhere")
		},
		"307": func(w http.ResponseWriter) {
			w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
			w.Header().Set("Location", "https://evil.example.com/x")
			refuse(w, 307, "TemporaryRedirect", "elsewhere")
		},
		"400 in a header": func(w http.ResponseWriter) {
			w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
			w.WriteHeader(400)
		},
		"400 in the body": func(w http.ResponseWriter) {
			w.WriteHeader(400)
			fmt.Fprint(w, "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region></Error>")
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			f := &fake{objects: map[string][]byte{"x": []byte("x")}}
			f.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Host == home {
					answer(w)
				}
				return r.Host == home
			}
			amazon.serve(t, f, home, there)
			src := reach(t, source.Access{})
			st := stat(t, src, "s3://photos/x")
			stagetest.Must(t, src.ReadAt(t.Context(), st, make([]byte, 1), 0))
			got := hosts(f)
			if len(got) < 3 || got[0] != "HEAD "+home+" us-east-1" || got[len(got)-1] != "GET "+there+" eu-west-1" {
				t.Errorf("the requests are %q", got)
			}
			if n := strings.Count(strings.Join(got, " "), home); n > 2 {
				t.Errorf("the wrong region was asked %d times", n)
			}
		})
	}
}

func TestRegionsInALoop(t *testing.T) {
	f := &fake{}
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		region := "eu-west-1"
		if strings.Contains(r.Host, region) {
			region = "us-east-1"
		}
		w.Header().Set("X-Amz-Bucket-Region", region)
		refuse(w, 301, "PermanentRedirect", "elsewhere")
		return true
	}
	amazon.serve(t, f, "photos.s3.us-east-1.amazonaws.com", "photos.s3.eu-west-1.amazonaws.com")
	_, err := reach(t, source.Access{}).Stat(t.Context(), "s3://photos/x")
	if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "loop") || len(f.requests()) > 4 {
		t.Errorf("after %d requests: %v", len(f.requests()), err)
	}
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("X-Amz-Bucket-Region", "eu/../evil.example.com")
		refuse(w, 301, "PermanentRedirect", "elsewhere")
		return true
	}
	_, err = reach(t, source.Access{}).Stat(t.Context(), "s3://photos/x")
	if e := errs.From(err); e.Code != errs.Config || !strings.Contains(e.Hint, "region") {
		t.Errorf("a region that is not one: %v", err)
	}
}

// A store that wants buckets in its host's name says so, and is asked that way from then on.
func TestBucketInTheHost(t *testing.T) {
	const plain, hosted = "s3.oss-eu-central-1.example.com", "photos.s3.oss-eu-central-1.example.com"
	f := &fake{}
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Host == plain:
			refuse(w, 403, "SecondLevelDomainForbidden", "Please use virtual hosted style to access.")
		case r.Host == hosted && r.URL.Path == "/x":
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "x", time.Time{}, strings.NewReader("x"))
		default:
			t.Errorf("%s%s was asked for", r.Host, r.URL.Path)
		}
		return true
	}
	amazon.serve(t, f, plain, hosted)
	src := reach(t, source.Access{Storage: source.Storage{EndpointURL: "https://" + plain}})
	st := stat(t, src, "s3://photos/x")
	stagetest.Must(t, src.ReadAt(t.Context(), st, make([]byte, 1), 0))
	if got := hosts(f); got[len(got)-1] != "GET "+hosted+" us-east-1" || len(got) != 4 {
		t.Errorf("the requests are %q", got)
	}
}

// Keys go to the store that is named, and to no other host.
func TestRedirectsToOtherHosts(t *testing.T) {
	var met atomic.Int32
	evil := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met.Add(1) }))
	defer evil.Close()
	f := newFake(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		f.before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", evil.URL+"/x?X-Amz-Signature=1")
			w.WriteHeader(status)
			return true
		}
		src := reach(t, source.Access{})
		_, err := src.Stat(t.Context(), "s3://some-bucket/x")
		if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "Signature") {
			t.Errorf("%d: %v", status, err)
		}
		if err := src.ReadAt(t.Context(), source.Info{Name: "s3://some-bucket/x", Size: 1}, make([]byte, 1), 0); errs.CodeOf(err) != errs.Config {
			t.Errorf("%d: %v", status, err)
		}
	}
	if met.Load() != 0 {
		t.Errorf("the other host was asked %d times", met.Load())
	}
}

// A clock that is off is put right by the answer that refuses it, with or without a body.
func TestClock(t *testing.T) {
	for _, off := range []time.Duration{20 * time.Minute, -20 * time.Minute} {
		f := newFake(t, map[string][]byte{"x": []byte("x")})
		f.before = func(w http.ResponseWriter, r *http.Request) bool {
			now := time.Now().Add(off)
			w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
			signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			if d := now.Sub(signed); err != nil || d > 15*time.Minute || d < -15*time.Minute {
				refuse(w, 403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
				return true
			}
			return false
		}
		src := reach(t, source.Access{})
		if got := read(t, src, "s3://some-bucket/x"); string(got) != "x" {
			t.Errorf("%q", got)
		}
		if n := len(f.requests()); n != 3 {
			t.Errorf("%d requests were made, want one that was refused, and two", n)
		}
		src = reach(t, source.Access{})
		st := source.Info{Name: "s3://some-bucket/x", Size: 1}
		errors := make(chan error)
		for range 8 {
			go func() { errors <- src.ReadAt(t.Context(), st, make([]byte, 1), 0) }()
		}
		for range 8 {
			if err := <-errors; err != nil {
				t.Errorf("one of several at once: %v", err)
			}
		}
		f.before = func(w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, 403, "RequestTimeTooSkewed", "no time is right")
			return true
		}
		_, err := reach(t, source.Access{}).Stat(t.Context(), "s3://some-bucket/x")
		if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "clock") {
			t.Errorf("a store that no time suits: %v", err)
		}
	}
}

// A host that was found out is looked up, not made again: each read asks for it twice.
func TestHostsAreKept(t *testing.T) {
	f := newFake(t, map[string][]byte{"x": []byte("0123456789")})
	amazon.serve(t, f, "photos.s3.us-east-1.amazonaws.com")
	src := reach(t, source.Access{})
	name := stat(t, src, "s3://photos/x").Name
	link := src.(source.Linked)
	if n := testing.AllocsPerRun(100, func() { link.Link(name) }); n > 0 {
		t.Errorf("%v allocations to find what is known of a host", n)
	}
}
