package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var everySecond = []int{0, 2, 4, 6, 8, 10, 12, 14, 16}

// halves is a machine whose lanes and whose device work at once, each on its rows: a
// batch is done when both are.
type halves struct {
	lane   float64          // batches a second of one lane
	cores  int              // more lanes than these add nothing
	device float64          // batches a second of the device
	call   float64          // seconds of a call of the device, however few rows it has
	step   float64          // seconds of a training step
	broken bool             // the device refuses all
	noise  func() float64   // a factor; nil: 1
	asked  map[Settings]int // how often
}

func (h *halves) rate(s Settings) float64 {
	share := float64(s.Share) / Sixteenths
	seconds := math.Max((1-share)/(h.lane*float64(min(s.Workers, h.cores))), h.step)
	if s.Share > 0 {
		seconds = math.Max(seconds, share/h.device+h.call)
	}
	return 1 / seconds
}

func (h *halves) Measure(_ context.Context, s Settings, _ time.Duration) (Figures, error) {
	if h.asked == nil {
		h.asked = map[Settings]int{}
	}
	h.asked[s]++
	if h.broken && s.Share > 0 {
		return Figures{}, errors.New("no decoder")
	}
	rate := h.rate(s)
	if h.noise != nil {
		rate *= h.noise()
	}
	return Figures{Samples: 8 * rate, Batches: rate, Cores: rate * (1 - float64(s.Share)/Sixteenths) / h.lane}, nil
}

func (h *halves) tuned(t testing.TB, all bool) *Report {
	t.Helper()
	space := Space{Batch: []int{8}, Shares: everySecond, All: all}.Complete(Own, float64(h.cores), true)
	r, err := Run(t.Context(), Config{Subject: Subject{Loader: Own, Step: h.step, Device: "cuda"}, Space: space, Budget: time.Hour}, h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// searched is the table of a search in which the throughput of a share is as given. No
// setting is asked for twice.
func searched(t rapid.TB, space Space, rate func(Settings) float64) (table []Measurement) {
	for {
		next, more := space.Next(table)
		if !more {
			return table
		}
		if _, known := find(table, next); known {
			t.Fatalf("%+v is measured twice", next)
		}
		x := rate(next)
		table = append(table, Measurement{Settings: next, Figures: Figures{Samples: 8 * x, Batches: x, Cores: 1}})
	}
}

// Of a throughput with one peak, anywhere, the search finds the best share, and the
// smallest that is good enough.
func TestSharesWithOnePeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		peak := rapid.IntRange(0, len(everySecond)-1).Draw(t, "peak")
		rates := make([]float64, len(everySecond))
		rates[peak] = 100
		falls := rapid.Float64Range(0.3, 0.999)
		for i := peak - 1; i >= 0; i-- {
			rates[i] = rates[i+1] * falls.Draw(t, "left")
		}
		for i := peak + 1; i < len(rates); i++ {
			rates[i] = rates[i-1] * falls.Draw(t, "right")
		}
		space := Space{Workers: []int{2}, Prefetch: []int{4}, Batch: []int{8}, Shares: everySecond}.Complete(Own, 2, true)
		table := searched(t, space, func(s Settings) float64 { return rates[slices.Index(everySecond, s.Share)] })
		for i, share := range []int{0, 4, 8, 12, 16} {
			if table[i].Share != share {
				t.Fatalf("share %d is measured first: %+v", share, table)
			}
		}
		choice, best, _ := Choose(table)
		if best.Share != everySecond[peak] {
			t.Fatalf("%v: the best is said to be %d", rates, best.Share)
		}
		want := everySecond[slices.IndexFunc(rates, func(x float64) bool { return x >= 100*(1-Slack) })]
		if choice.Share != want {
			t.Fatalf("%v: chose %d, want %d", rates, choice.Share, want)
		}
	})
}

// Any table ends, whatever is measured.
func TestSharesOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := Space{Batch: []int{8, 16}, Shares: rapid.SampledFrom([][]int{{0}, {0, 16}, {0, 4, 8}, {3}, everySecond}).Draw(t, "shares")}
		space = space.Complete(Own, rapid.Float64Range(1, 40).Draw(t, "cores"), false)
		table := searched(t, space, func(Settings) float64 { return rapid.Float64Range(0, 100).Draw(t, "rate") })
		if len(table) > len(space.every()) {
			t.Fatalf("%d of %d measured", len(table), len(space.every()))
		}
		for _, m := range table {
			if !slices.Contains(space.Shares, m.Share) {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// Prefetch and pinned memory are tried with the share that is chosen.
func TestOtherSettingsHaveTheShare(t *testing.T) {
	for speed, share := range map[float64]int{0.01: 0, 1: 8, 100: Sixteenths} {
		h := &halves{lane: 10, cores: 1, device: 10 * speed}
		space := Space{Batch: []int{8}, Shares: everySecond, Pin: []bool{false, true}}.Complete(Own, 1, true)
		for _, m := range searched(t, space, h.rate) {
			if (m.Pin || m.Prefetch != space.Usual) && m.Share != share {
				t.Errorf("a device of %g: %+v", speed, m)
			}
		}
	}
	// A few more workers are as good as a share: then there is none.
	rates := map[int][2]float64{1: {94.5, 100}, 2: {98, 98}} // by workers, without a share and with all of it
	space := Space{Workers: []int{1, 2}, Prefetch: []int{2, 4}, Batch: []int{8}, Shares: []int{0, 16}}.Complete(Own, 2, false)
	table := searched(t, space, func(s Settings) float64 { return rates[s.Workers][s.Share/Sixteenths] })
	if choice, _, _ := Choose(table); choice.Share != 0 || choice.Workers != 2 {
		t.Errorf("%+v", choice)
	}
	if !slices.ContainsFunc(table, func(m Measurement) bool { return m.Share == 0 && m.Prefetch == 2 }) {
		t.Errorf("%+v", table)
	}
}

func TestDevicesOfAllSpeeds(t *testing.T) {
	for _, cores := range []int{1, 2, 4, 8, 16} {
		for _, speed := range []float64{0.01, 0.1, 0.3, 1, 3, 100} { // of the device, over all cores
			for _, call := range []float64{0, 0.2} {
				h := &halves{lane: 10, cores: cores, device: speed * 10 * float64(cores)}
				h.call = call / h.device
				some, all := h.tuned(t, false), h.tuned(t, true)
				about := fmt.Sprintf("%d cores, a device of %g, call %g: %+v", cores, speed, call, some.Choice)
				if some.Choice.Samples < (1-2*Slack)*all.Best.Samples {
					t.Errorf("%s; the best is %+v", about, all.Best)
				}
				if speed <= 0.01 && some.Choice.Share != 0 || speed == 100 && some.Choice.Share != Sixteenths {
					t.Error(about)
				}
				if speed == 100 && call == 0 && cores > 1 && some.Choice.Workers != 1 {
					t.Errorf("%s: lanes that have nothing to do", about)
				}
				if speed == 1 && (some.Choice.Share < 6 || some.Choice.Share > 8) {
					t.Error(about)
				}
				if some.Doubt != "" || len(some.Table) > 30 {
					t.Errorf("%s: %d settings, %q", about, len(some.Table), some.Doubt)
				}
			}
		}
	}
}

// What is not close to the best is measured once.
func TestSharesAreMeasuredOnceUnlessTheyMayBeBest(t *testing.T) {
	h := &halves{lane: 10, cores: 1, device: 10}
	r := h.tuned(t, false)
	for s, n := range h.asked {
		if far := h.rate(s)*8 < contender*r.Best.Samples*0.99; far && n != 1 || !far && n < 1+repeats {
			t.Errorf("%+v was measured %d times", s, n)
		}
	}
}

// A step that the engine feeds alone needs no device: none is measured.
func TestAStepThatTheEngineFeeds(t *testing.T) {
	h := &halves{lane: 100, cores: 4, device: 1000, step: 0.02}
	r := h.tuned(t, false)
	if r.Choice.Share != 0 || len(r.shares()) != 1 || !strings.Contains(r.decoder(), "because the training step is the limit") {
		t.Errorf("%+v: %s", r.Choice, r.decoder())
	}
	h = &halves{lane: 5, cores: 4, device: 1000, step: 0.02}
	if r = h.tuned(t, false); r.Choice.Share == 0 {
		t.Errorf("%+v", r.Choice)
	}
}

// If the budget ends before a share is measured, that is said, and not that none is
// needed.
func TestABudgetTooSmallForShares(t *testing.T) {
	space := Space{Workers: []int{1}, Batch: []int{8}, Shares: everySecond}.Complete(Own, 1, true)
	h := &halves{lane: 10, cores: 1, device: 1000}
	r, err := Run(t.Context(), Config{Subject: Subject{Loader: Own, Device: "cuda"}, Space: space, Budget: time.Nanosecond}, h)
	if err != nil || !r.Cut || !strings.Contains(r.decoder(), "because the budget ended before") {
		t.Errorf("%v: %s", err, r.decoder())
	}
}

func TestADeviceThatRefusesAll(t *testing.T) {
	h := &halves{lane: 10, cores: 2, device: 1000, broken: true}
	r := h.tuned(t, false)
	if r.Choice.Share != 0 || r.Choice.Workers != 2 {
		t.Errorf("%+v", r.Choice)
	}
	for s, n := range h.asked {
		if s.Share > 0 && n > 1 {
			t.Errorf("%+v was measured %d times", s, n)
		}
	}
}

// Little noise decides nothing, and with much of it there is a right recommendation, or none.
func TestNoiseOfShares(t *testing.T) {
	doubts := 0
	for seed := range uint64(60) {
		draw := rand.New(rand.NewPCG(seed, 2))
		for _, noise := range []float64{0.02, 0.6} {
			h := &halves{lane: 10, cores: 1, device: 10, noise: func() float64 { return 1 + noise*(draw.Float64()-0.5) }}
			r := h.tuned(t, false)
			if r.Doubt != "" {
				doubts++
				if noise < 0.1 || !strings.Contains(r.Doubt, "it cannot be told which share is enough") {
					t.Errorf("noise of %g: %s", noise, r.Doubt)
				}
				continue
			}
			if least := map[bool]float64{true: 1.7, false: 1.2}[noise < 0.1]; h.rate(r.Choice.Settings) < least*h.lane {
				t.Errorf("noise of %g: chose %+v", noise, r.Choice)
			}
		}
	}
	if doubts == 0 {
		t.Error("nothing was doubted")
	}
}

func TestTextOfShares(t *testing.T) {
	for _, c := range []struct {
		speed float64
		want  []string
	}{
		{0.01, []string{"decode_device=None\n", "the engine alone decodes: no measured share of cuda is faster by more than 5 %"}},
		{1, []string{`decode_device=("cuda", 0.5)`, "cuda decodes 8/16 of the JPEGs: no smaller share that was measured is within 5 % of the best", "       8/16"}},
		{100, []string{`decode_device=("cuda", 1)`, "cuda alone decodes: no smaller share that was measured is within 5 % of the best"}},
	} {
		h := &halves{lane: 10, cores: 1, device: 10 * c.speed}
		r := h.tuned(t, false)
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.want, "with decode_device=\"cuda\"\n", "on device") {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing:\n%s", want, b.String())
			}
		}
	}
}

// A loader finds the entry of the device that it decodes on, and no other; each has its
// own.
func TestPlaybookOfShares(t *testing.T) {
	book := filepath.Join(t.TempDir(), File)
	day := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	r := (&halves{lane: 10, cores: 1, device: 10}).tuned(t, false)
	r.Dataset, r.Name = "d", "data/train"
	if err := r.Keep(book, "", day); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(book)
	if err != nil || !strings.Contains(string(text), "    decode_device: \"cuda\"\n") || !strings.Contains(string(text), "      decode_sixteenths: 8\n") {
		t.Fatalf("%v\n%s", err, text)
	}
	plain := *r
	plain.Device, plain.Choice.Share = "", 0
	if err := plain.Keep(book, "", day.Add(time.Hour)); err != nil || plain.Before != "" {
		t.Fatalf("%q %v", plain.Before, err)
	}
	p, _, err := Read(book)
	if err != nil || len(p.Entries) != 2 {
		t.Fatalf("%+v %v", p, err)
	}
	about := Entry{Machine: r.Hardware.Digest(), Dataset: "d", Loader: Own}
	for device, share := range map[string]int{"": 0, "cuda": 8} {
		about.Device = device
		if e, ok := p.Find(about); !ok || e.Settings.Share != share || e.Device != device {
			t.Errorf("%q: %+v", device, e)
		}
	}
	about.Device = "cpu"
	if e, ok := p.Find(about); ok {
		t.Errorf("%+v", e)
	}
	near, ok := p.Nearest(about)
	now := near
	now.Device = about.Device
	if changes := Changes(near, now); !ok || len(changes) != 1 || changes[0] != (Change{"settings", "decode_device", "none", "cpu"}) {
		t.Errorf("%+v: %+v", near, changes)
	}
	again := *r
	again.Choice.Share = 12
	if err := again.Keep(book, "", day.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if len(again.Changes) != 1 || again.Changes[0] != (Change{"settings", "decode_sixteenths", "8", "12"}) {
		t.Errorf("%+v", again.Changes)
	}
	for wrong, want := range map[string]string{
		strings.Replace(string(text), "sixteenths: 8", "sixteenths: 17", 1):                "entry 1 has decode_sixteenths 17: give 0 to 16",
		strings.Replace(string(text), "    decode_device: \"cuda\"\n", "", 1):              "entry 1 has decode_sixteenths, but no decode_device",
		strings.Replace(string(text), "sixteenths: 8", "sixteenths: 0.5", 1):               "decode_sixteenths is 0.5; it should be a whole number",
		strings.Replace(string(text), "decode_device: \"cuda\"", "decode_device: true", 1): "decode_device is true; it should be a text",
	} {
		if _, err := parse([]byte(wrong)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
