package compare

import (
	"bytes"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Two things that were saved by whoever: they compare, or the error says why not; the
// verdict does not depend on which of them comes first.
func FuzzDiff(f *testing.F) {
	state := func(rest string) string {
		return `{"version":1,"epoch":0,"position":2,"order":{"shuffle":"full"},"dataset":"d","pipeline":"p","seed":1` + rest + `}`
	}
	part := func(from, to, sum string) string {
		return `{"epoch":0,"from":` + from + `,"to":` + to + `,"rank":0,"world_size":1,"samples":1,"sum":"` + sum + `"}`
	}
	receipt := func(seed, parts string) string {
		return `{"version":1,"dataset":"d","seed":` + seed + `,"order":{"shuffle":"full"},"parts":[` + parts + `]}`
	}
	none, one := "00000000000000000000000000000000", "00000000000000000000000000000001"
	for _, seed := range [][2]string{
		{"1 2 3 3", "3 2 1 4"},
		{"[1, 2]", "2 1"},
		{"1 -2", "1"},
		{"[[0, 1], [2]]", "0 1 x"},
		{"1 2", "1 2 3"},
		{`{"ids": [1, 2], "valid": [true, false]}`, `{"ids": [1], "valid": [true, true]}`},
		{`{"ids": [4], "from": [1]}` + "\n" + `{"ids": [5], "from": [0]}`, `{"ids": [4, 5]}`},
		{`{"lr": 0.1, "model": {}}`, `[{}]`},
		{state(""), state(`,"epoch":3`)},
		{state(""), state(`,"position":5`)},
		{state(""), state(`,"seed":2`)},
		{state(""), state(`,"order":{"shuffle":"none","window":4}`)},
		{state(`,"position":-1`), state(`,"order":3`)},
		{state(`,"seed":1.5`), state(`,"dataset":7`)},
		{state(`,"version":99`), `{"position": 1}`},
		{state(""), "1"},
		{receipt("1", part("0", "2", none)), receipt("1", part("0", "2", one))},
		{receipt("1", part("0", "2", none)+","+part("2", "4", one)), receipt("1", part("0", "4", one))},
		{receipt("1", part("0", "2", none)+","+part("8", "9", none)), receipt("1", part("0", "2", none))},
		{receipt("1", ""), receipt("2", "")},
		{"[" + receipt("1", part("0", "1", none)) + "," + receipt("2", part("1", "2", none)) + "]", "[" + receipt("1", "") + "]"},
		{`[{"version":9,"parts":[]}]`, `[{"version":1,"parts":[{"sum":"x"}]}]`},
		{`[{"version":1,"parts":[]}, 3]`, `{"version":1,"parts":7}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		a, b := &Thing{Name: "a"}, &Thing{Name: "b"}
		for thing, raw := range map[*Thing][]byte{a: one, b: other} {
			if err := thing.parse(raw); err != nil {
				if code := errs.CodeOf(err); code != errs.Config && code != errs.State && code != errs.Incompatible {
					t.Fatalf("%v", err)
				}
				return
			}
		}
		there, err := Diff(a, b, nil)
		back, errBack := Diff(b, a, nil)
		if (err == nil) != (errBack == nil) {
			t.Fatalf("%v, and turned round %v", err, errBack)
		}
		if err != nil {
			if code := errs.CodeOf(err); code != errs.Config && code != errs.State {
				t.Fatalf("%v", err)
			}
			return
		}
		if there.Same != back.Same || there.SameStream != back.SameStream || len(there.Differences) != len(back.Differences) {
			t.Fatalf("%+v, and turned round %+v", there, back)
		}
		var text bytes.Buffer
		if err := there.WriteText(&text); err != nil || text.Len() == 0 {
			t.Fatalf("%q: %v", text.String(), err)
		}
		if differs := there.Err(); there.Same != (differs == nil) || differs != nil && errs.CodeOf(differs) != errs.Differs {
			t.Fatalf("same: %v, and %v", there.Same, differs)
		}
	})
}
