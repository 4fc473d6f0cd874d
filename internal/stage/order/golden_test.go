package order_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/order"
)

// goldenOrders is testdata/orders.json: orders that saved states rest on. They
// may never change; where this test fails, the code is wrong, not the file. The
// Python client reads it too.
//
// A new case is a line that a person writes at the end, up to the policy. Run
// the test with STOKER_NEW_ORDERS=1 and it completes such lines with what the
// code says; it touches no line that is complete.
const goldenOrders = "../../../testdata/orders.json"

// locked is how many cases there are; it only grows.
const locked = 101

type goldenFile struct {
	Note   []string          `json:"note"`
	Orders []json.RawMessage `json:"orders"`
}

// golden is one epoch. The policy's keys are the names of Policy's fields.
type golden struct {
	Name    string          `json:"name"`
	Samples int64           `json:"samples"`
	Seed    uint64          `json:"seed"`
	Epoch   int64           `json:"epoch"`
	Policy  json.RawMessage `json:"policy"`
	Ask     []int64         `json:"ask,omitempty"`    // more places, whose samples are in At
	Summed  int64           `json:"summed,omitempty"` // items in the digest, where all are too many

	Places int64       `json:"places,omitempty"`
	Items  int64       `json:"items,omitempty"` // where they are not places
	First  []int64     `json:"first,omitempty"` // samples of the first places
	At     []int64     `json:"at,omitempty"`
	Rows   [][][]int64 `json:"rows,omitempty"` // the first items: [place, sample, from, len] of each piece
	Digest string      `json:"digest,omitempty"`
}

// fill says what the code makes of a case.
func (g *golden) fill(t *testing.T) {
	t.Helper()
	var p order.Policy
	if err := strictly(g.Policy, &p); err != nil {
		t.Fatalf("%s: %v", g.Name, err)
	}
	p.Seed = g.Seed
	plan, err := order.New(g.Samples, p)
	if err != nil {
		t.Fatalf("%s: %v", g.Name, err)
	}
	e := plan.Epoch(g.Epoch)
	g.Places, g.Items = e.Places(), 0
	g.First, g.At, g.Rows = nil, nil, nil
	for place := range min(24, g.Places) {
		g.First = append(g.First, e.At(place))
	}
	for _, place := range g.Ask {
		g.At = append(g.At, e.At(place))
	}
	if e.Batches() || e.Rows() {
		g.Items = e.Len()
		for i := range min(4, g.Items) {
			var row [][]int64
			for _, p := range e.Item(i, nil) {
				row = append(row, []int64{p.Place, p.Sample, p.From, p.Len})
			}
			g.Rows = append(g.Rows, row)
		}
	}
	summed := g.Summed
	if summed == 0 {
		summed = e.Len()
	}
	sum, _ := e.Sum(0, summed)
	g.Digest = sum.String()
}

func strictly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func readGolden(t *testing.T) (file goldenFile) {
	t.Helper()
	text, err := os.ReadFile(goldenOrders)
	if err == nil {
		err = strictly(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOrdersNeverChange(t *testing.T) {
	file := readGolden(t)
	if len(file.Orders) < locked {
		t.Errorf("%d orders in the file, and there were %d: none may go", len(file.Orders), locked)
	}
	names := map[string]bool{}
	added := false
	for i, line := range file.Orders {
		var want golden
		if err := strictly(line, &want); err != nil {
			t.Fatalf("order %d: %v", i, err)
		}
		if names[want.Name] {
			t.Errorf("%q is there twice", want.Name)
		}
		names[want.Name] = true
		got := want
		got.fill(t)
		switch {
		case want.Digest != "":
			compareGolden(t, got, want)
		case os.Getenv("STOKER_NEW_ORDERS") == "":
			t.Errorf("%q is not complete: run with STOKER_NEW_ORDERS=1", want.Name)
		default:
			file.Orders[i] = oneLine(t, got)
			added = true
		}
	}
	if added && !t.Failed() {
		writeGolden(t, file)
	}
}

func compareGolden(t *testing.T, got, want golden) {
	t.Helper()
	same := got.Places == want.Places && got.Items == want.Items && got.Digest == want.Digest &&
		slices.Equal(got.First, want.First) && slices.Equal(got.At, want.At) &&
		bytes.Equal(oneLine(t, got.Rows), oneLine(t, want.Rows))
	if !same {
		t.Errorf("%s: an order that runs rest on has changed:\n got %s\nwant %s", want.Name, oneLine(t, got), oneLine(t, want))
	}
}

// oneLine is JSON with a space after commas and colons, as a person writes it.
func oneLine(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	inside := false
	for i, c := range text {
		if c == '"' && (i == 0 || text[i-1] != '\\') {
			inside = !inside
		}
		if out = append(out, c); !inside && (c == ',' || c == ':') {
			out = append(out, ' ')
		}
	}
	return out
}

func writeGolden(t *testing.T, file goldenFile) {
	t.Helper()
	var out bytes.Buffer
	out.WriteString("{\n \"note\": [")
	for i, line := range file.Note {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n  ")
		out.Write(oneLine(t, line))
	}
	out.WriteString("\n ],\n \"orders\": [")
	for i, line := range file.Orders {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n  ")
		out.Write(line)
	}
	out.WriteString("\n ]\n}\n")
	if err := os.WriteFile(goldenOrders, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The file is held against the reference too: what is locked is what the
// definitions say.
func TestLockedOrdersAreAsDefined(t *testing.T) {
	file := readGolden(t)
	for _, line := range file.Orders {
		var g golden
		var p order.Policy
		if err := strictly(line, &g); err != nil {
			t.Fatal(err)
		}
		if err := strictly(g.Policy, &p); err != nil {
			t.Fatal(err)
		}
		if g.Samples > 10_000/slow {
			continue
		}
		p.Seed = g.Seed
		want := naive(g.Samples, p, g.Epoch)
		var sum order.Sum
		for place, id := range want.ids {
			sum.Add(int64(place), id)
		}
		if !slices.Equal(g.First, want.ids[:len(g.First)]) || g.Digest != sum.String() {
			t.Errorf("%s: locked is %v, %s; defined %v, %v", g.Name, g.First, g.Digest, want.ids[:len(g.First)], sum)
		}
	}
}
