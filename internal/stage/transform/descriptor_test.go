package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// exampleOf is a program of one operation, by its example, the same program without
// it, and how many steps are in front of it: those that need floats get them, and
// those that do nothing to colours get grey pictures.
func exampleOf(t *testing.T, all []descriptor, d *descriptor) (p, plain *Program, front int) {
	t.Helper()
	op := Op{Name: d.name}
	if err := json.Unmarshal([]byte(d.example), &op.Args); err != nil {
		t.Fatalf("%s has no example: %v", d.name, err)
	}
	var err error
	for _, given := range []struct {
		codec string
		ops   []Op
	}{{"rgb", nil}, {"rgb", []Op{{Name: "ToTensor"}}}, {"gray", nil}} {
		if plain, err = Compile(given.codec, given.ops, "nhwc"); err != nil {
			t.Fatal(err)
		}
		p, err = Compile(given.codec, append(given.ops, op), "nhwc")
		if front = len(plain.steps); err == nil && (len(p.steps) > front || d.cost == nothing) {
			return p, plain, front
		}
	}
	t.Fatalf("%s: its example does nothing, or %v", d.name, err)
	return nil, nil, 0
}

// seen is what an operation does to one picture.
type seen struct {
	choices []Choice
	shape   mem.Shape
	pixels  []byte
	steps   int
}

func see(t *testing.T, l *Lane, p *Program, in []byte, key rng.Key) (s seen) {
	t.Helper()
	var err error
	if s.choices, err = p.Explain(l, in, key); err != nil {
		t.Fatal(err)
	}
	s.steps = len(l.run.chain.Steps())
	shape, pixels := whole(t, l, p, in, key)
	s.shape, s.pixels = shape, pixels
	return s
}

// TestDescriptors: every operation says all there is to say of it, and nothing that
// what it does to its example contradicts.
func TestDescriptors(t *testing.T) {
	all := catalog()
	l := NewLane()
	defer l.Close()
	in := readSource(t, "wide.png")
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for i := range all {
		d := &all[i]
		t.Run(d.name, func(t *testing.T) {
			if d.cost == 0 || d.says == 0 || d.example == "" {
				t.Fatalf("its cost (%d), what its choices say (%d) or its example (%q) is missing", d.cost, d.says, d.example)
			}
			if (d.says == silent) != (len(d.numbers) == 0) || len(d.numbers) > mostNumbers || d.says == region && len(d.numbers) < 4 {
				t.Errorf("the numbers of a choice are %v", d.numbers)
			}
			if d.draws && d.says == silent {
				t.Error("it draws, and its choices are not explained")
			}
			for _, name := range append(slices.Clone(d.params), d.numbers...) {
				if !snake.MatchString(name) {
					t.Errorf("the name %q", name)
				}
			}
			p, plain, front := exampleOf(t, all, d)
			if d.cost == nothing {
				if d.name != "Compose" && len(p.steps) > front {
					t.Error("it costs nothing, and leaves a trace")
				}
				return
			}
			s := &p.steps[front]
			if s.descriptor != d && s.name != d.name {
				t.Fatalf("it is compiled to %s", s.name)
			}
			checkFacts(t, l, d, p, plain, in)
			if d.draws && slides(t, l, all, d) != d.slides {
				t.Errorf("it commutes with a Resize: %v in its descriptor, not by what it does", d.slides)
			}
		})
	}
}

// checkFacts holds d to what p, its example, does for many keys. plain is what is in
// front of it.
func checkFacts(t *testing.T, l *Lane, d *descriptor, p, plain *Program, in []byte) {
	t.Helper()
	before := see(t, l, plain, in, 0)
	first := see(t, l, p, in, rng.Sample(1, 0, 0))
	varies, resized, changed, moved := false, false, false, false
	for place := range int64(32) {
		s := see(t, l, p, in, rng.Sample(1, 0, place))
		varies = varies || fmt.Sprint(s.choices) != fmt.Sprint(first.choices) || !bytes.Equal(s.pixels, first.pixels)
		resized = resized || !slices.Equal(s.shape[:2], before.shape[:2])
		changed = changed || !bytes.Equal(s.pixels, before.pixels) || !slices.Equal(s.shape, before.shape)
		moved = moved || s.steps > before.steps
		if d.says == silent {
			if len(s.choices) > 0 {
				t.Fatalf("it is silent, and says %v", s.choices)
			}
			continue
		}
		if len(s.choices) == 0 || s.choices[0].Op != d.name {
			t.Fatalf("it says %v", s.choices)
		}
		for i, name := range d.numbers {
			if s.choices[0].Values[i].Name != name {
				t.Errorf("number %d is told as %q", i, s.choices[0].Values[i].Name)
			}
		}
	}
	settled := !varies && first.shape[2] == before.shape[2] && p.DType() == mem.Uint8
	for _, fact := range []struct {
		name       string
		said, done bool
	}{
		{"draws", d.draws, varies},
		{"resizes", d.resizes || d.cost == held, resized},
		{"is settled", d.settled, settled},
		{"does something", true, changed},
		{"gives kernel steps", d.cost != converts, moved},
		{"makes floats, or changes them", d.cost == converts, p.DType() == mem.Float32},
	} {
		if fact.said != fact.done {
			t.Errorf("%s: %v in its descriptor, %v by what it does", fact.name, fact.said, fact.done)
		}
	}
}

// slides says whether the example of d gives nearly the same in front of a Resize as
// after it.
func slides(t *testing.T, l *Lane, all []descriptor, d *descriptor) bool {
	t.Helper()
	op := Op{Name: d.name}
	if err := json.Unmarshal([]byte(d.example), &op.Args); err != nil {
		t.Fatal(err)
	}
	resize := opsOf(t, `[{"op":"Resize","size":[72,96]}]`)[0]
	first, err := Compile("rgb", []Op{op, resize}, "nhwc")
	later, err2 := Compile("rgb", []Op{resize, op}, "nhwc")
	if err != nil || err2 != nil {
		return false
	}
	for place := range int64(8) {
		shape, a := whole(t, l, first, readSource(t, "wide.png"), rng.Sample(1, 0, place))
		other, b := whole(t, l, later, readSource(t, "wide.png"), rng.Sample(1, 0, place))
		sum := 0
		for i := range min(len(a), len(b)) {
			sum += max(int(a[i])-int(b[i]), int(b[i])-int(a[i]))
		}
		if !slices.Equal(shape, other) || sum > 2*len(a) {
			return false
		}
	}
	return true
}

// TestChoicesNeverChange: what each operation chooses for its example. Users keep
// runs by it. A new operation gets its entry by -update; an old one never.
func TestChoicesNeverChange(t *testing.T) {
	const name = "testdata/choices.json"
	l := NewLane()
	defer l.Close()
	got := map[string][]string{}
	all := catalog()
	for i := range all {
		if all[i].says == silent {
			continue
		}
		p, _, _ := exampleOf(t, all, &all[i])
		for place := range int64(8) {
			choices, err := p.Explain(l, readSource(t, "wide.png"), rng.Sample(2, 1, place))
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(choices)
			if err != nil {
				t.Fatal(err)
			}
			got[all[i].name] = append(got[all[i].name], string(b))
		}
	}
	var kept map[string][]string
	if *update {
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &kept)
		}
		if kept == nil || err != nil {
			kept = map[string][]string{}
		}
		for op, choices := range got {
			if kept[op] == nil {
				kept[op] = choices
			}
		}
		if b, err = json.MarshalIndent(kept, "", " "); err == nil {
			err = os.WriteFile(name, append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	readJSON(t, name, &kept)
	if diff := cmp.Diff(kept, got); diff != "" {
		t.Errorf("choices have changed, or those of a new operation are not kept yet (-kept +now):\n%s", diff)
	}
}

type counting struct{ taken, given int64 }

func (c *counting) Take(n int64) { c.taken += n }
func (c *counting) Give(n int64) { c.given += n }

// TestWasted: only what could be in front of a random operation is wasted after it.
func TestWasted(t *testing.T) {
	for ops, want := range map[string]string{
		`["RandomHorizontalFlip",{"op":"Resize","size":9}]`:                                     "RandomHorizontalFlip Resize",
		`["RandomGrayscale","RandomVerticalFlip",{"op":"Resize","size":9}]`:                     "RandomGrayscale Resize",
		`[{"op":"Resize","size":9},"RandomHorizontalFlip"]`:                                     " ",
		`[{"op":"RandomCrop","size":9},"RandomHorizontalFlip",{"op":"Resize","size":5}]`:        " ",
		`["RandomHorizontalFlip",{"op":"RandomResizedCrop","size":9},{"op":"Resize","size":5}]`: " ",
	} {
		if first, later := Wasted(opsOf(t, ops)); first+" "+later != want {
			t.Errorf("%s: %q %q", ops, first, later)
		}
	}
}
