package tune_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/tool/tune"
)

// script is the process at the other end: two settings between which only noise
// decides, so that both are measured again and compared. It answers so many times,
// and then is gone, or is interrupted.
type script struct {
	line      *tune.Line
	asked     int
	last      int // 0: it never ends
	interrupt context.CancelFunc
}

func (s *script) Measure(ctx context.Context, set tune.Settings, about time.Duration) (tune.Figures, error) {
	s.asked++
	if s.last > 0 && s.asked > s.last {
		if s.interrupt == nil {
			return s.line.Measure(ctx, set, about)
		}
		s.interrupt()
	}
	rate := 100 + 2*float64(set.Workers)
	return tune.Figures{Samples: rate, Batches: rate / 8, Cores: 1, First: 0.01}, nil
}

// A conversation that breaks off is an error whenever that is, and a report is not made
// of what came until then: of the search, of what is measured again, or of the pairs.
func TestAConversationThatBreaksOff(t *testing.T) {
	run := func(last int, interrupted bool) (int, *tune.Report, error) {
		hello := `{"loader": "torch", "dataset": "d", "name": "n", "space": {"workers": [1, 2]}}`
		line, _, err := tune.Listen(strings.NewReader(hello+"\n"), &strings.Builder{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		meter := &script{line: line, last: last}
		if interrupted {
			meter.interrupt = cancel
		}
		space := tune.Space{Workers: []int{1, 2}, Prefetch: []int{2}, Batch: []int{8}}.Complete(tune.Torch, 4, false)
		r, err := tune.Run(ctx, tune.Config{Subject: tune.Subject{Loader: tune.Torch}, Space: space, Budget: time.Hour}, meter)
		return meter.asked, r, err
	}
	all, r, err := run(0, false)
	if err != nil || r.Choice.Workers != 1 || r.Best.Workers != 2 || len(r.Pairs) == 0 || all < 2+2+2*len(r.Pairs) {
		t.Fatalf("%d measurements, %+v: %v", all, r, err)
	}
	for last := 1; last < all; last++ {
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			_, r, err := run(last, false)
			if gone := new(tune.LineError); r != nil || !errors.As(err, &gone) {
				t.Errorf("gone after %d of %d measurements: %+v, %v", last, all, r, err)
			}
			if _, r, err = run(last, true); r != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted after %d of %d measurements: %+v, %v", last, all, r, err)
			}
		})
	}
}
