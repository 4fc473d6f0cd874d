package errs

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// The text of a place in JSON is what tools and the Python client read. It does not
// change: an unknown number is -1.
func TestJSONOfWhere(t *testing.T) {
	for want, w := range map[string]Where{
		`{"offset":-1,"sample":-1}`:                {},
		`{"file":"x.jpg","offset":-1,"sample":-1}`: {File: "x.jpg"},
		`{"file":"x.jpg","offset":0,"sample":0}`:   {File: "x.jpg", Offset: Known(0), Sample: Known(0)},
		`{"offset":-1,"sample":3,"worker":0}`:      {Sample: Known(3), Worker: Known(0)},
		`{"shard":"a.tar","member":"1.jpg","field":"jpg","offset":512,"sample":3,"epoch":1,"step":0,"rank":-2}`: {Shard: "a.tar", Member: "1.jpg", Field: "jpg", Offset: Known(512), Sample: Known(3), Moment: &Moment{1, 0, -2}},
	} {
		got, err := json.Marshal(w)
		if err != nil || string(got) != want {
			t.Errorf("%+v is written as %s (%v), want %s", w, got, err, want)
		}
		var back Where
		if err := json.Unmarshal(got, &back); err != nil || back.String() != w.String() {
			t.Errorf("%s is read as %q (%v), want %q", got, back, err, w)
		}
	}
	var w Where
	if err := json.Unmarshal([]byte(`{"offset":null}`), &w); err != nil || w != (Where{}) {
		t.Errorf("what is left out or null is %+v (%v)", w, err)
	}
}

// A place without numbers is valid, and says nothing of them.
func TestZeroWhere(t *testing.T) {
	for want, w := range map[string]Where{
		"":                        {},
		"x.jpg":                   {File: "x.jpg"},
		"x.jpg, offset 0":         {File: "x.jpg", Offset: Known(0)},
		"shard a.tar, sample 7":   {Shard: "a.tar", Sample: Known(7), Offset: Known(-1)},
		"sample 7, worker 2":      {Sample: Known(7), Worker: Known(2)},
		"offset 9, sample 0":      {Offset: Known(9), Sample: Known(0)},
		"epoch 2, step 1, rank 0": {Moment: &Moment{2, 1, 0}},
	} {
		if got := w.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if e := New(Bug, "x"); e.Where != (Where{}) || e.Error() != "x" {
		t.Errorf("%v", e)
	}
}

// A number is what it was made of, or unknown, and JSON keeps either.
func TestNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-5, 1<<62).Draw(t, "n")
		k := Known(n)
		got, known := k.Get()
		if known != (n >= 0) || known && got != n || k.Or(-7) != map[bool]int64{true: n, false: -7}[known] {
			t.Fatalf("Known(%d) is %d, %v", n, got, known)
		}
		b, err := json.Marshal(k)
		var back Number
		if err != nil || json.Unmarshal(b, &back) != nil || back != k {
			t.Fatalf("%s is read as %v", b, back)
		}
		if k == (Number{}) == known {
			t.Fatal("the zero value is not what is unknown")
		}
	})
}

// A file that the text quotes is not named again; anything else of the location is.
func TestWhatIsQuotedIsNotNamedAgain(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"/a/b", `there is no "/a/b"`},
		{"https://u:x@h/b?sig=x", `there is no "https://h/b"`},
		{"/a", `there is no "/a/b" (/a)`},
	} {
		quoted := map[bool]string{true: c.file, false: "/a/b"}[c.file != "/a"]
		if got := New(NotFound, "there is no %q", quoted).At(Where{File: c.file}).Error(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if got := New(NotFound, "no %q", "a").At(Where{File: "a", Field: "f"}).Error(); got != `no "a" (field "f")` {
		t.Error(got)
	}
	if got := Many(1, "sample") + Many(int64(0), "shard"); got != "1 sample0 shards" {
		t.Error(got)
	}
}
