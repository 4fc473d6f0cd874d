package lines

import (
	"context"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// said is what an index of a file of 20 bytes says.
type said struct {
	samples   int64
	first     []int64
	size, gap []int32
	mark      []int64
}

func (s said) accepted(t *testing.T) bool {
	t.Helper()
	x, err := index.Store{}.Load(context.Background(), index.Plan{
		Key: index.Key{Format: "lines"},
		Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
			format.Describe(b, []source.Info{{Name: "/a.jsonl", Size: 20, Version: "00000001"}})
			b.Meta.Samples = s.samples
			b.Int64s(fileFirst, s.first, index.Identity)
			b.Int32s(sampleSize, s.size, index.Identity)
			b.Int32s(sampleGap, s.gap, index.Aside)
			b.Int64s(sampleMark, s.mark, index.Aside)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	return valid(x)
}

// An index may come with the data, from anyone: one whose columns do not fit together,
// or lead out of the file, is refused.
func TestForgedIndex(t *testing.T) {
	genuine := func() said {
		return said{samples: 2, first: []int64{0, 2}, size: []int32{9, 9}, gap: []int32{0, 1}, mark: []int64{0}}
	}
	if !genuine().accepted(t) {
		t.Fatal("the true index is refused")
	}
	for name, change := range map[string]func(s *said){
		"no sample":           func(s *said) { *s = said{first: []int64{0, 0}} },
		"more samples":        func(s *said) { s.samples = 3 },
		"a size too few":      func(s *said) { s.size = s.size[:1] },
		"a gap too many":      func(s *said) { s.gap = append(s.gap, 0) },
		"no mark":             func(s *said) { s.mark = nil },
		"a mark too many":     func(s *said) { s.mark = append(s.mark, 20) },
		"another mark":        func(s *said) { s.mark[0] = 1 },
		"no file":             func(s *said) { s.first = s.first[:1] },
		"a file too many":     func(s *said) { s.first = append(s.first, 2) },
		"a late beginning":    func(s *said) { s.first[0] = 1 },
		"another end":         func(s *said) { s.first[1] = 1 },
		"a size below zero":   func(s *said) { s.size[1] = -1 },
		"a gap below zero":    func(s *said) { s.gap[1] = -9 },
		"more than the file":  func(s *said) { s.size[1] = 11 },
		"a gap out of it too": func(s *said) { s.gap[1] = 12 },
	} {
		s := genuine()
		if change(&s); s.accepted(t) {
			t.Errorf("%s: accepted", name)
		}
	}
}
