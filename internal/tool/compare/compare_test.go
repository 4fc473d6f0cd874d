package compare

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/tool/orders"
)

// steps draws what stoker order may write.
func steps(t *rapid.T) (out []*orders.Step, real []id) {
	for range rapid.IntRange(1, 4).Draw(t, "steps") {
		s := &orders.Step{}
		n := rapid.IntRange(1, 5).Draw(t, "rows")
		padded, split := rapid.Bool().Draw(t, "padded"), rapid.Bool().Draw(t, "split")
		for range n {
			i := id{sample: rapid.Int64Range(0, 1<<40).Draw(t, "sample")}
			if split {
				i.from = rapid.Int64Range(0, 3).Draw(t, "from")
				s.From = append(s.From, i.from)
			}
			valid := true
			if padded {
				valid = rapid.Bool().Draw(t, "valid")
				s.Valid = append(s.Valid, valid)
			}
			if valid {
				real = append(real, i)
			}
			s.IDs = append(s.IDs, i.sample)
		}
		out = append(out, s)
	}
	return out, real
}

// Text and JSON of steps are read as what they were written from.
func TestStepsAreReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, want := steps(t)
		var text, lines []byte
		for _, s := range all {
			text = s.AppendText(text)
			line, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
		for _, raw := range [][]byte{text, lines} {
			var thing Thing
			if err := thing.parse(raw); err != nil || thing.Kind != IDs || !slices.Equal(thing.list.ids, want) || len(thing.list.ends) != len(all) {
				t.Fatalf("%v, %+v from %s, not %v", err, thing.list, raw, want)
			}
		}
	})
}

// Lists are compared as a naive count of ids does it.
func TestListsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (l list) {
			for _, s := range rapid.SliceOfN(rapid.Int64Range(0, 6), 0, 8).Draw(t, name) {
				l.add(s, 0, true)
			}
			return l
		}
		a, b := draw("a"), draw("b")
		r := &Report{Kind: IDs}
		r.lists(&a, &b)
		count := func(l list) map[id]int64 {
			m := map[id]int64{}
			for _, i := range l.ids {
				m[i]++
			}
			return m
		}
		ca, cb := count(a), count(b)
		var onlyA, onlyB, twiceA, twiceB int64
		for i := range int64(7) {
			x, y := ca[id{sample: i}], cb[id{sample: i}]
			onlyA += max(0, x-y)
			onlyB += max(0, y-x)
			if x > 1 {
				twiceA++
			}
			if y > 1 {
				twiceB++
			}
		}
		got := r.Lists
		if got.A.Only != onlyA || got.B.Only != onlyB || got.A.Twice != twiceA || got.B.Twice != twiceB || got.SameSet != reflect.DeepEqual(ca, cb) {
			t.Fatalf("%v against %v: %+v", a.ids, b.ids, got)
		}
		same := slices.Equal(a.ids, b.ids)
		if (got.First == nil) != same || (len(r.Differences) == 0) != same {
			t.Fatalf("%v against %v: %+v", a.ids, b.ids, got.First)
		}
		if f := got.First; f != nil && (!slices.Equal(a.ids[:f.Index], b.ids[:f.Index]) || f.A == f.B) {
			t.Fatalf("%v against %v: %+v", a.ids, b.ids, f)
		}
	})
}

// What is between two states follows from the order, also if items are batches.
func TestBetween(t *testing.T) {
	lengths := make([]float64, 90)
	for i := range lengths {
		lengths[i] = float64(1 + i*i%13)
	}
	places := spec.Spec{
		Dataset: spec.Dataset{Format: "synthetic", Samples: 90, Shape: []int{1}},
		Order:   spec.Order{Shuffle: order.Full, Seed: 4}, Batch: spec.Batch{Size: 3},
	}
	byTokens := places
	byTokens.Batch = spec.Batch{Tokens: 30, Window: 20, Lengths: spec.Lengths{Numbers: spec.Numbers{List: lengths}}}
	for name, s := range map[string]spec.Spec{"places": places, "batches": byTokens} {
		in, err := orders.Open(t.Context(), s, dataset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			at := func(name string) *state {
				e := rapid.Int64Range(0, 3).Draw(t, name+" epoch")
				return &state{epoch: e, position: rapid.Int64Range(0, in.Epoch(e).Len()).Draw(t, name)}
			}
			from, to := at("from"), at("to")
			if from.epoch > to.epoch || from.epoch == to.epoch && from.position > to.position {
				from, to = to, from
			}
			var ids []int64
			items := int64(0)
			for e := from.epoch; e <= to.epoch; e++ {
				for i := range in.Epoch(e).Len() {
					if e == from.epoch && i < from.position || e == to.epoch && i >= to.position {
						continue
					}
					items++
					for _, p := range in.Epoch(e).Item(i, nil) {
						ids = append(ids, p.Sample)
					}
				}
			}
			got := between(in, from, to)
			if got.Samples != int64(len(ids)) || got.Items != items || !slices.Equal(got.First, ids[:min(len(ids), shown)]) {
				t.Fatalf("%s: %+v, not %d items of %d: %v", name, got, items, len(ids), ids)
			}
		})
		in.Close()
	}
}

// Whatever bytes a file holds, reading it ends with a Thing or an error of the
// user's, and never hangs or panics.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "[", "{", "1 2\n(3)", "[1, [2, [3]]]", `{"ids": [1], "valid": [true]}`, `{"position": 1}`, "7@3 (8@", "\x80\x04", "PK\x03\x04",
		`{"version":1,"epoch":0,"position":2,"order":{"shuffle":"full","mix":[1]},"dataset":"d","pipeline":"p","seed":18446744073709551615}`,
		`[{"version":1,"parts":[{"epoch":0,"from":0,"to":2,"sum":"00000000000000000000000000000000"}]}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, b := &Thing{Name: "a"}, &Thing{Name: "b"}
		if err := a.parse(raw); err != nil {
			if code := errs.CodeOf(err); code != errs.Config && code != errs.State && code != errs.Incompatible {
				t.Fatalf("%v", err)
			}
			return
		}
		if err := b.parse(raw); err != nil {
			t.Fatal(err)
		}
		r, err := Diff(a, b, nil)
		if err != nil {
			if a.Kind != Receipt { // of several streams
				t.Fatal(err)
			}
			return
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil || !r.Same || r.Err() != nil {
			t.Fatalf("a thing is not itself: %v\n%s", err, text.String())
		}
	})
}

// Seeds have 64 bits, and are never converted to floats.
func TestSeedsAreWhole(t *testing.T) {
	dir := t.TempDir()
	file := func(name, seed string) *Thing {
		path := filepath.Join(dir, name)
		text := `{"version":1,"dataset":"d","pipeline":"p","seed":` + seed + `,"epoch":0,"position":0,"order":{"shuffle":"full"}}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		thing, err := Read(t.Context(), nil, path)
		if err != nil {
			t.Fatal(err)
		}
		return thing
	}
	r, err := Diff(file("a", "18446744073709551615"), file("b", "18446744073709551614"), nil)
	if err != nil || r.SameStream || !strings.Contains(r.Differences[0], "seed: 18446744073709551615 in A, 18446744073709551614 in B") {
		t.Errorf("%v, %+v", err, r)
	}
}

// Values that begin alike for longer than is shown are compared to their ends.
func TestLongValues(t *testing.T) {
	long := func(end string) *state {
		var s state
		keys := map[string]json.RawMessage{}
		text := `{"version":1,"epoch":0,"position":0,"order":{"mix":"` + strings.Repeat("x", 2*longest) + end + `"}}`
		if err := json.Unmarshal([]byte(text), &keys); err != nil {
			t.Fatal(err)
		}
		if err := s.parse(keys); err != nil {
			t.Fatal(err)
		}
		return &s
	}
	r := &Report{Kind: State}
	if err := r.states(long("a"), long("b"), nil); err != nil || r.SameStream || len(r.Differences) != 1 || len(r.Differences[0]) > 3*longest {
		t.Errorf("%v, %+v", err, r)
	}
}
