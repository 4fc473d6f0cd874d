package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stream"
)

func (r *Report) receipts(a, b *Thing) error {
	ha, err := header(a)
	if err != nil {
		return err
	}
	hb, err := header(b)
	if err != nil {
		return err
	}
	r.keys(ha, hb, "")
	r.SameStream = len(r.Differences) == 0
	pa, pb := parts(a.receipts), parts(b.receipts)
	same := 0
	for same < min(len(pa), len(pb)) && reflect.DeepEqual(pa[same], pb[same]) {
		same++
	}
	switch {
	case same < len(pa) && same < len(pb):
		r.part(pa[same], pb[same])
	case same < len(pa):
		r.differ("A has %s, the first is %s", errs.Many(len(pa)-same, "more part"), name(pa[same]))
	case same < len(pb):
		r.differ("B has %s, the first is %s", errs.Many(len(pb)-same, "more part"), name(pb[same]))
	}
	return nil
}

// header is what all receipts of a file say of their stream.
func header(t *Thing) (map[string]any, error) {
	var first map[string]any
	for i, receipt := range t.receipts {
		receipt.Parts = nil
		text, _ := json.Marshal(receipt)
		var keys map[string]any
		_ = json.Unmarshal(text, &keys) // it was marshalled just now
		delete(keys, "parts")
		keys["seed"] = json.Number(jsonSeed(receipt.Seed))
		if i == 0 {
			first = keys
		} else if !reflect.DeepEqual(first, keys) {
			return nil, errs.New(errs.Config, "receipts 0 and %d of %q are of different streams", i, t.Name).Try("compare them one by one: stoker diff takes two files")
		}
	}
	return first, nil
}

func jsonSeed(seed uint64) string {
	text, _ := json.Marshal(seed)
	return string(text)
}

// parts is the sorted parts of receipts, with consecutive ones joined: it does not
// matter where a run was interrupted.
func parts(receipts []stream.Receipt) (out []stream.ReceiptPart) {
	var all []stream.ReceiptPart
	for _, r := range receipts {
		all = append(all, r.Parts...)
	}
	slices.SortStableFunc(all, func(a, b stream.ReceiptPart) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.World, b.World), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for _, p := range all {
		if n := len(out) - 1; n >= 0 && out[n].Epoch == p.Epoch && out[n].World == p.World && out[n].Rank == p.Rank && out[n].To == p.From {
			last := &out[n]
			last.To = p.To
			last.Samples += p.Samples
			last.Sum.Plus(p.Sum)
			last.Skipped = slices.Concat(last.Skipped, p.Skipped)
			last.Replaced = slices.Concat(last.Replaced, p.Replaced)
			continue
		}
		out = append(out, p)
	}
	return out
}

// part describes the first two parts that differ.
func (r *Report) part(a, b stream.ReceiptPart) {
	switch {
	case a.Epoch != b.Epoch || a.From != b.From || a.To != b.To || a.Rank != b.Rank || a.World != b.World:
		r.differ("the first parts that differ are %s in A, %s in B", name(a), name(b))
	case a.Samples != b.Samples:
		were := "were"
		if a.Samples == 1 {
			were = "was"
		}
		r.differ("%s: %s %s received in A, %d in B", name(a), errs.Many(a.Samples, "sample"), were, b.Samples)
	case a.Sum != b.Sum:
		r.differ("%s: as many samples in both, %d, but not the same ones in the same places", name(a), a.Samples)
	default:
		r.differ("%s: other samples were skipped or replaced: %d and %d in A, %d and %d in B", name(a),
			len(a.Skipped), len(a.Replaced), len(b.Skipped), len(b.Replaced))
	}
}

func name(p stream.ReceiptPart) string {
	return fmt.Sprintf("epoch %d, items %d to %d, rank %d of %d", p.Epoch, p.From, p.To, p.Rank, p.World)
}
