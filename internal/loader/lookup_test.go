package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/crew"
)

// numbered is a pass: for each step its position, its sum, and the ids of its rows, which
// the last two columns begin with; together is the most steps that came at once.
func numbered(t testing.TB, l *Loader, most int) (lines []string, together int) {
	t.Helper()
	p, err := l.Pass(1, 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	p.Bundle(most)
	for {
		b, err := p.Next(context.Background(), 20*time.Second)
		if errors.Is(err, io.EOF) {
			return lines, together
		}
		if err != nil {
			t.Fatal(err)
		}
		counts := b.Counts
		if counts == nil {
			counts = []compose.Count{b.Count}
		}
		together = max(together, len(counts))
		at := b.Columns[len(b.Columns)-2].Off
		for _, c := range counts {
			line := fmt.Sprintf("to %d, %s of %d:", c.After, c.Sum, c.Real)
			for range b.Rows {
				line += fmt.Sprint(" ", le.Uint64(b.Slot.Mem[at:]))
				at += 8
			}
			lines = append(lines, line)
		}
		b.Release()
	}
}

// A loader of ids has the order, the positions and the sums of one whose workers make the
// samples, whether its steps come alone or together.
func TestIDsAlone(t *testing.T) {
	spec := workersSpec(1050)
	l, s := openCrew(t, spec, crew.Options{Workers: 2})
	s.hire(2)
	want, _ := numbered(t, l, 1)
	if len(want) != 131 {
		t.Fatalf("%d steps", len(want))
	}
	for _, most := range []int{1, 16} {
		l := open(t, workersGround(t), spec, Options{IDs: true})
		got, together := numbered(t, l, most)
		if !slices.Equal(got, want) || together > 1 != (most > 1) {
			t.Errorf("%d together: %v, and of workers %v", together, got, want)
		}
	}
	l = open(t, ground(t), spec, Options{IDs: true})
	for range 3 {
		p, err := l.Pass(0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.Cancel()
	}
}
