package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// A worker that is at one sample for too long is named and killed, however often, and its
// rows are made by others.
func TestWorkersThatAreStuck(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			l, s := openWorkers(t, workersSpec(48), whole)
			var processes []*exec.Cmd
			s.pid = func() int {
				cmd := exec.Command("sh", "-c", "trap '' 62; while :; do sleep 1; done") // 62 asks for its stack
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				processes = append(processes, cmd)
				return cmd.Process.Pid
			}
			epoch := l.Epoch(0)
			sample := epoch.At(20)
			var hold atomic.Bool
			hold.Store(true)
			s.holds = func(n int64) bool { return n == sample && hold.Load() }
			s.hire(2)
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			const deadline = 300 * time.Millisecond
			var got []string
			stop := func() {}
			defer func() { stop() }()
			for stalls := 0; ; {
				b, err := p.Next(context.Background(), deadline)
				if errors.Is(err, io.EOF) {
					break
				}
				if err == nil {
					got = append(got, rowsMade(t, b, whole)...)
					b.Release()
					continue
				}
				if stalls++; stalls == 3 {
					hold.Store(false)
				}
				e := errs.From(l.Workers().Stalled(err, deadline))
				if _, known := e.Where.Worker.Get(); e.Code != errs.Stalled || e.Where.Sample.Or(-1) != sample || !known || e.Where.Moment == nil {
					t.Fatalf("%v", e)
				}
				if want := fmt.Sprintf("has been at sample %d for", sample); !strings.Contains(e.What, want) || !strings.HasPrefix(e.What, "no batch for 0.") {
					t.Errorf("%q", e.What)
				}
				if stalls == 3 { // another worker may make all that is left, and none is missing
					stop = s.replace()
					continue
				}
				missing, told := 0, false // others may be slow for as long where something else has the cores
				for begin := time.Now(); !told; time.Sleep(10 * time.Millisecond) {
					n, died := l.Workers().Wanted()
					for _, d := range died {
						told = told || d.Stuck && d.Sample == sample
					}
					missing = n
					if time.Since(begin) > 60*time.Second {
						t.Fatalf("%d are missing, and nobody says who was killed", n)
					}
				}
				s.hire(missing)
			}
			if !slices.Equal(got, expected(l, 0, 0)) {
				t.Errorf("%d rows", len(got))
			}
			stop()
			if len(processes) < 4 {
				t.Errorf("%d workers", len(processes))
			}
		})
	}
}
