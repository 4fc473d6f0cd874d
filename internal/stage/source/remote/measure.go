package remote

import (
	"context"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// sampled is the last values of a figure.
type sampled struct {
	last [64]float64
	n    int
	sort []float64 // of last
	old  int       // values since sort was made
}

func (s *sampled) add(v float64) {
	s.last[s.n%len(s.last)] = v
	s.n++
	s.old++
}

// at returns the value that this share of the values is below; 0 if there are none.
func (s *sampled) at(share float64) float64 {
	if s.n == 0 {
		return 0
	}
	if s.sort == nil || s.old >= 8 || s.n < 8 {
		s.sort = append(s.sort[:0], s.last[:min(s.n, len(s.last))]...)
		slices.Sort(s.sort)
		s.old = 0
	}
	return s.sort[min(int(share*float64(len(s.sort))), len(s.sort)-1)]
}

// measures are how a host answers; under host.mu.
type measures struct {
	latency   sampled          // seconds until an answer begins
	bandwidth sampled          // bytes per second of one body
	taken     map[int]*sampled // seconds of whole reads, by the logarithm of their length
}

// bodyLeast is the shortest body whose bandwidth is measured: a shorter one arrives with
// the head.
const bodyLeast = 256 << 10

// meter notes when the answer to a request begins, and tells the host when bytes come: stores
// pass its context to Fill.
type meter struct {
	host         *host
	begun, first time.Time
	patience     time.Duration // see Options
}

type meterKey struct{}

// meterOf is that of a request, or one that nobody reads.
func meterOf(ctx context.Context) *meter {
	if m, ok := ctx.Value(meterKey{}).(*meter); ok {
		return m
	}
	return &meter{patience: patience}
}

// came is called when the body begins and when bytes of it have come.
func (m *meter) came(now time.Time) {
	if m.first.IsZero() {
		m.first = now
	}
	if m.host != nil {
		m.host.hears(now)
	}
}

// measured counts an answer of n bytes; h.mu is held.
func (h *host) measured(m *meter, n int, now time.Time) {
	if m.first.IsZero() {
		return
	}
	h.latency.add(m.first.Sub(m.begun).Seconds())
	if took := now.Sub(m.first).Seconds(); n >= bodyLeast && took > 0 {
		h.bandwidth.add(float64(n) / took)
	}
}

const (
	partLeast, partMost = 1 << 20, 16 << 20
	partFirst           = 4 << 20
	partSlow            = 64 << 10 // least if the user limits the bandwidth
	gapFirst            = 256 << 10
	gapLeast, gapMost   = 16 << 10, 4 << 20
	// bodies is how much longer than the wait for its answer a part's body should take.
	bodies = 4
)

// Link is source.Linked's: a hole costs less than a request if it arrives within the
// wait for an answer; a part is long enough that this wait does not matter much.
func (s *Source) Link(name string) (source.Link, bool) {
	h := s.way(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	l := source.Link{Gap: gapFirst, Part: partFirst, Conns: max(int(h.limit), 1)}
	if most := s.access.Connections; most > 0 {
		l.Conns = min(l.Conns, most)
	}
	if latency, bandwidth := h.latency.at(0.5), h.bandwidth.at(0.5); h.latency.n >= 8 && bandwidth > 0 {
		l.Gap = min(max(int64(latency*bandwidth), gapLeast), gapMost)
		l.Part = min(max(int64(bodies*latency*h.bandwidth.at(0.9)), partLeast), partMost)
	}
	if most := s.access.Bandwidth; most > 0 {
		// With a limit, requests are short: a batch waits for all bytes of its request, also
		// those after its own. Holes take time, too.
		l.Gap = min(l.Gap, max(most/64, gapLeast))
		l.Part = min(l.Part, max(most/8, partSlow))
	}
	return l, true
}
