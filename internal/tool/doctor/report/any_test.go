package report

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
)

// figuresOf calls functions with every place of a JSON document that holds a number or
// a text, and with every object, so that keys can be taken away.
func figuresOf(v any, number func(set func(float64), was float64), text func(set func(string)), object func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		object(v)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			x := v[k]
			switch x := x.(type) {
			case float64:
				number(func(to float64) { v[k] = to }, x)
			case string:
				text(func(to string) { v[k] = to })
			default:
				figuresOf(x, number, text, object)
			}
		}
	case []any:
		for i, x := range v {
			switch x := x.(type) {
			case float64:
				number(func(to float64) { v[i] = to }, x)
			case string:
				text(func(to string) { v[i] = to })
			default:
				figuresOf(x, number, text, object)
			}
		}
	}
}

// Whatever was measured, or was not, there is a report: rules are asked on machines
// and of scripts that nobody has seen.
func TestAnyEvidenceHasAReport(t *testing.T) {
	paths, err := filepath.Glob("../testdata/evidence/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	texts := make([][]byte, len(paths))
	for i, path := range paths {
		if texts[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(texts)-1).Draw(t, "evidence")
		var doc any
		if err := json.Unmarshal(texts[at], &doc); err != nil {
			t.Fatal(err)
		}
		often := rapid.SampledFrom([]int{3, 20, 100}).Draw(t, "often")
		one := func(label string) bool { return rapid.IntRange(0, often).Draw(t, label) == 0 }
		figuresOf(doc, func(set func(float64), was float64) {
			if one("change") {
				whole := was == float64(int64(was))
				if one("second") { // where units change
					set(rapid.Float64Range(0.99, 1.01).Draw(t, "to"))
					return
				}
				to := was * rapid.SampledFrom([]float64{0, 1e-9, 0.01, 0.3, 3, 100, 1e9, -1, 1e300, -1e300}).Draw(t, "by")
				if math.IsInf(to, 0) { // JSON has no such number
					return
				}
				if whole {
					to = float64(int64(to))
				}
				set(max(-math.MaxFloat64, min(to, math.MaxFloat64))) // JSON has no infinity
			}
		}, func(set func(string)) {
			if one("word") {
				set(rapid.SampledFrom([]string{"", "\x1b[31mred", "two\nlines\tand more", strings.Repeat("long", 60), strings.Repeat("many words ", 30)}).Draw(t, "text"))
			}
		}, func(object map[string]any) {
			for _, k := range slices.Sorted(maps.Keys(object)) {
				if k != "source" && one("drop") {
					delete(object, k)
				}
			}
		})
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var ev evidence.Evidence
		if json.Unmarshal(text, &ev) != nil {
			return // no Evidence
		}
		r := judge.Judge(ev)
		if r.Verdict.Name == "" {
			t.Fatalf("no verdict on %s", text)
		}
		var out strings.Builder
		if err := errors.Join(Shown(r).WriteText(&out), Shown(r).WriteTimeline(&out), Shown(r).WriteChecklist(&out), Shown(r).WriteCost(&out, 1), Shown(r).WriteTiers(&out)); err != nil {
			t.Fatal(err)
		}
		fits(t, r, out.String())
		if _, err := json.Marshal(r); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	})
}
