package watch

import (
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/tool/doctor/gather"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// The page of an engine that ended before it was looked at in /proc is a loop like any
// other; which line made it is not known then.
func TestAPageOfAProcessThatWasNotSeen(t *testing.T) {
	page, err := stats.NewPage(stats.RoleEngine)
	if err != nil {
		t.Fatal(err)
	}
	s := page.Stream(5, 2, nil)
	defer s.Close()
	w := &watching{pages: gather.NewPages(), folder: gather.NewFolder(t.TempDir()), watched: system.NewWatched("/")}
	defer w.pages.Close()
	for i := range 5 {
		w.pages.Look([]int{os.Getpid()}, true)
		s.Delivered(stats.Progress{Step: int64(i), Samples: int64(8 * (i + 1)), Batches: int64(i + 1)})
	}
	w.pages.Look([]int{os.Getpid()}, false)
	ev := w.evidence()
	if len(ev.Loops) != 1 || ev.Loops[0].PID != os.Getpid() || ev.Loops[0].Settings.Where != "" {
		t.Errorf("%+v", ev.Loops)
	}
}
