package engine

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// Another process finds the engine's page, and reads there what the engine tells
// its client.
func TestTheEnginesPage(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	opened := c.open(folder(t, 50))
	passed := c.ask(&wire.Message{Type: wire.TypePass, Loader: opened.Loader})
	for {
		b := c.ask(&wire.Message{Type: wire.TypeNext, Pass: passed.Pass, Timeout: 20000})
		if b.Type == wire.TypeEnd {
			break
		}
		if b.Type != wire.TypeBatch {
			t.Fatalf("next is %+v", b.Error)
		}
		c.giveBack(b.Slot, wire.SlotFree)
	}
	r, err := stats.Open(c.engine.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for end := time.Now().Add(patience); len(r.Spans()) < 7; time.Sleep(time.Millisecond) {
		if time.Now().After(end) { // a span is written when its batch was sent
			t.Fatalf("%d spans of 7 batches", len(r.Spans()))
		}
	}
	spans := r.Spans() // in the order of writing, which on busy cores is not that of the steps
	slices.SortFunc(spans, func(a, b stats.Span) int { return cmp.Compare(a.Step, b.Step) })
	for i, s := range spans {
		if s.Loader != opened.Loader || s.Step != int64(i) || s.Begun > s.Filled || s.Filled > s.Delivered || s.Asked > s.Delivered {
			t.Errorf("span %d is %+v", i, s)
		}
	}
	told := func(request string) (out struct {
		stats.Snapshot
		Rates stats.Interval `json:"rates"`
		CPU   float64        `json:"process_cpu_s"`
	},
	) {
		t.Helper()
		a := c.ask(&wire.Message{Type: wire.TypeStats, Loader: opened.Loader, Stats: json.RawMessage(request)})
		if a.Error != nil {
			t.Fatal(a.Error)
		}
		if err := json.Unmarshal(a.Stats, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	now := told("{}")
	all := r.Loaders()
	if len(all) != 1 || r.Header().Role != stats.RoleEngine || r.Header().PID != c.engine.Process.Pid {
		t.Fatalf("the page shows %+v of %+v", all, r.Header())
	}
	page := all[0]
	if page.Loader != opened.Loader || page.Samples != 50 || page.Batches != 7 || page.Wait.Items != 7 || page.Passes != 1 {
		t.Errorf("the page shows %+v", page)
	}
	if now.Samples != page.Samples || now.Batches != page.Batches || now.Loader != page.Loader || now.CPU <= 0 {
		t.Errorf("the engine tells %+v", now)
	}
	if now.Rates.Samples <= 0 || now.Rates.Limiting == "" {
		t.Errorf("rates are %+v", now.Rates)
	}
	// Since what it told before nothing has happened.
	before, err := json.Marshal(map[string]any{"before": now.Snapshot, "wait_share": 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if again := told(string(before)); again.Rates.Samples != 0 || again.Rates.Batches != 0 || again.Rates.WaitShare != 0.5 {
		t.Errorf("since then: %+v", again.Rates)
	}
	if a := c.ask(&wire.Message{Type: wire.TypeStats, Loader: opened.Loader, Stats: json.RawMessage(`[1]`)}); a.Error == nil {
		t.Error("numbers that are none were taken")
	}
	_ = c.engine.Process.Kill()
	c.ended("it was killed")
	if got := r.Loaders(); len(got) != 1 || got[0].Samples != 50 {
		t.Errorf("after its death the page shows %+v", got)
	}
}
