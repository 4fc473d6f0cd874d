package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stream"
	"github.com/stoker-data/stoker/internal/tool/orders"
)

// state is a State as it was written: samplers have different keys from loaders.
type state struct {
	epoch, position int64
	keys            map[string]any // the other keys; numbers as they were written
	whole           stream.State
}

// meaning describes keys in words; the others are clear by themselves.
var meaning = map[string]string{
	"version":  "version of the state",
	"dataset":  "dataset (digest of names, sizes and labels)",
	"pipeline": "pipeline (digest of fields and transforms)",
	"skipped":  "skipped steps",
	"sampler":  "kind of sampler",
}

func (s *state) parse(keys map[string]json.RawMessage) error {
	damaged := func(format string, a ...any) error {
		return errs.New(errs.State, "the state is damaged: "+format, a...).Try("save what loader.state_dict() returns unchanged")
	}
	for _, name := range []string{"version", "epoch", "order"} {
		if keys[name] == nil {
			return damaged("it has no %s", name)
		}
	}
	s.keys = map[string]any{}
	for name, raw := range keys {
		var n *int64
		switch name {
		case "epoch":
			n = &s.epoch
		case "position":
			n = &s.position
		default:
			d := json.NewDecoder(bytes.NewReader(raw))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				return damaged("%s is %s", name, err)
			}
			s.keys[name] = v
			continue
		}
		if json.Unmarshal(raw, n) != nil || *n < 0 || string(raw) == "null" {
			return damaged("%s is %.40s; it should be a whole number that is not negative", name, raw)
		}
	}
	if _, ok := s.keys["order"].(map[string]any); !ok {
		return damaged("order is %.40s; it should be keys and values", keys["order"])
	}
	text, err := json.Marshal(keys)
	if err == nil {
		err = json.Unmarshal(text, &s.whole)
	}
	if err != nil {
		return damaged("%s", err)
	}
	return nil
}

// Ahead is how far one state is before the other.
type Ahead struct {
	Which  string `json:"which"`            // "a" or "b"
	Epochs int64  `json:"epochs"`           // difference of their epochs' numbers
	Places *int64 `json:"places,omitempty"` // absent where only a Spec could tell
}

// Between is what the stream delivers from one state to the other.
type Between struct {
	Items   int64   `json:"items"` // places, or batches where the order makes them
	Samples int64   `json:"samples"`
	First   []int64 `json:"first"` // ids
	Batches bool    `json:"batches"`
}

func (r *Report) states(a, b *state, in *orders.Orders) error {
	r.keys(a.keys, b.keys, "")
	// What was skipped belongs to the way, not to the stream.
	r.SameStream = !slices.ContainsFunc(r.Differences, func(d string) bool { return !strings.HasPrefix(d, meaning["skipped"]) })
	var wrong error
	if r.SameStream && in != nil {
		wrong = fits(in, a)
		if wrong == nil {
			wrong = fits(in, b)
		}
	}
	if wrong != nil || a.epoch == b.epoch && a.position == b.position {
		return wrong
	}
	ahead, from, to := "b", a, b
	if a.epoch > b.epoch || a.epoch == b.epoch && a.position > b.position {
		ahead, from, to = "a", b, a
	}
	r.Ahead = &Ahead{Which: ahead, Epochs: to.epoch - from.epoch}
	if r.Ahead.Epochs == 0 {
		r.Ahead.Places = new(to.position - from.position)
	}
	if r.SameStream && in != nil {
		r.Between = between(in, from, to)
		r.Ahead.Places = &r.Between.Items
	}
	r.differ("%s", r.Ahead.text(from, to))
	return nil
}

// fits says why a state is not of a Spec's order; it ignores what is done to the
// samples.
func fits(in *orders.Orders, s *state) error {
	st := s.whole
	st.Pipeline = in.Pipeline()
	return in.Check(st)
}

// keys compares the values of every key, and those below order one by one.
func (r *Report) keys(a, b map[string]any, prefix string) {
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		inA, okA := a[key].(map[string]any)
		inB, okB := b[key].(map[string]any)
		if okA && okB {
			r.keys(inA, inB, prefix+key+".")
			continue
		}
		if va, vb := word(a[key]), word(b[key]); va != vb {
			name := meaning[key]
			if name == "" || prefix != "" {
				name = prefix + key
			}
			r.differ("%s: %s in A, %s in B", name, shorten(va), shorten(vb))
		}
	}
}

// word is a value for comparison. A state omits values that have their default, which is
// not null but equal to it.
func word(v any) string {
	if v == nil {
		return "not set"
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// longest is how many bytes of a value are shown: enough for a whole state of usual
// size.
const longest = 400

func shorten(text string) string {
	if len(text) > longest {
		return text[:longest] + " ..."
	}
	return text
}

func (a *Ahead) text(from, to *state) string {
	who := strings.ToUpper(a.Which)
	switch {
	case a.Epochs == 0:
		return fmt.Sprintf("%s is ahead by %s: %d against %d of epoch %d", who, errs.Many(*a.Places, "place"), to.position, from.position, to.epoch)
	case a.Places != nil:
		return fmt.Sprintf("%s is ahead by %s: epoch %d, place %d against epoch %d, place %d", who, errs.Many(*a.Places, "place"), to.epoch, to.position, from.epoch, from.position)
	}
	return fmt.Sprintf("%s is ahead: epoch %d, place %d against epoch %d, place %d (--spec counts the samples between them)", who, to.epoch, to.position, from.epoch, from.position)
}

// between counts from one state to a later one of the same stream.
func between(in *orders.Orders, from, to *state) *Between {
	out := &Between{First: []int64{}}
	var pieces []order.Piece
	for epoch := from.epoch; epoch <= to.epoch; epoch++ {
		e := in.Epoch(epoch)
		begin, end := int64(0), e.Len()
		if epoch == from.epoch {
			begin = from.position
		}
		if epoch == to.epoch {
			end = to.position
		}
		grouped := e.Batches() || e.Rows()
		out.Batches = out.Batches || e.Batches()
		out.Items += max(0, end-begin)
		for i := begin; i < end && len(out.First) < shown; i++ {
			pieces = e.Item(i, pieces[:0])
			for _, p := range pieces {
				if p.From == 0 && len(out.First) < shown {
					out.First = append(out.First, p.Sample)
				}
			}
		}
		switch {
		case !grouped:
			out.Samples += max(0, end-begin)
		case begin == 0 && end == e.Len():
			out.Samples += e.Places()
		default:
			_, n := e.Sum(begin, end)
			out.Samples += n
		}
	}
	return out
}

func (b *Between) write(w io.Writer) {
	are := "are"
	if b.Samples == 1 {
		are = "is"
	}
	fmt.Fprintf(w, "%s %s between them: %s\n", errs.Many(b.Samples, "sample"), are, some(b.First, b.Samples))
}
