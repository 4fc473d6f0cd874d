package order

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// slowMix is a mixture the slow way: the stream is written down run by run, and
// every member is a queue that is filled again when it is empty. Weights are
// small whole numbers.
type slowMix struct {
	Mix
	seed    uint64
	queues  [][]int64 // what is left of each member's pass, own numbers
	numbers []int64   // of the pass that comes next
}

func newSlowMix(m Mix, seed uint64) *slowMix {
	m.Run = max(m.Run, 1)
	return &slowMix{Mix: m, seed: seed, queues: make([][]int64, len(m.Members)), numbers: make([]int64, len(m.Members))}
}

// sums is the units of the members up to each, in a cycle, and the number of
// cycles since the weights last changed.
func (s *slowMix) sums(cycle int) (units []int, since int) {
	length := int(1000 * s.Run)
	at := func(p Point) int {
		c := int(p.Place) / length
		if int(p.Place)%length != 0 {
			c++
		}
		return c
	}
	rounded := func(p Point) []int {
		total, sum := 0, 0
		for _, w := range p.Weights {
			total += int(w)
		}
		var out []int
		for _, w := range p.Weights {
			sum += int(w)
			out = append(out, (2*1024000*sum+total)/(2*total))
		}
		return out
	}
	i := len(s.Points) - 1
	for at(s.Points[i]) > cycle {
		i--
	}
	here := rounded(s.Points[i])
	begin := at(s.Points[i])
	if !s.Linear || i == len(s.Points)-1 {
		return here, cycle - begin
	}
	there := rounded(s.Points[i+1])
	n := at(s.Points[i+1]) - begin
	steps := min(n, 256)
	k := 0
	for begin+(k+1)*n/steps <= cycle {
		k++
	}
	for d := range here {
		here[d] = (here[d]*(2*steps-2*k-1) + there[d]*(2*k+1) + steps) / (2 * steps)
	}
	return here, cycle - begin - k*n/steps
}

// counts is the runs of each member in a cycle of m.
func (s *slowMix) counts(cycle, m int) []int {
	units, since := s.sums(cycle)
	phase := 0
	for bit := range 10 {
		if since>>bit&1 == 1 {
			phase += 512 >> bit
		}
	}
	var out []int
	before := 0
	for _, u := range units {
		upto := (m*u + 1000*phase) / 1024000
		out = append(out, upto-before)
		before = upto
	}
	return out
}

// cycles is the number of runs of every cycle of an epoch.
func (s *slowMix) cycles() []int {
	var lengths []int
	if s.Stop == Repeat {
		places := s.Num
		if places == 0 {
			for _, m := range s.Members {
				places += m.Samples
			}
		}
		runs := int((places + s.Run - 1) / s.Run)
		for ; runs > 1000; runs -= 1000 {
			lengths = append(lengths, 1000)
		}
		return append(lengths, runs)
	}
	done := make([]int, len(s.Members))
	ok := func(m int) bool {
		for d, n := range s.counts(len(lengths), m) {
			have, size := (done[d]+n)*int(s.Run), int(s.Members[d].Samples)
			if s.Stop == FirstExhausted && have > size {
				return false
			}
			ever := false
			for _, p := range s.Points {
				ever = ever || p.Weights[d] > 0
			}
			if s.Stop == AllExhausted && ever && have < size {
				return false
			}
		}
		return true
	}
	for ok(1000) == (s.Stop == FirstExhausted) {
		for d, n := range s.counts(len(lengths), 1000) {
			done[d] += n
		}
		lengths = append(lengths, 1000)
	}
	if s.Stop == FirstExhausted {
		for m := 999; m > 0; m-- {
			if ok(m) {
				return append(lengths, m)
			}
		}
		return lengths
	}
	for m := 1; ; m++ {
		if ok(m) {
			return append(lengths, m)
		}
	}
}

// epoch is the ids of one epoch, and whose they are. Epochs come in order.
func (s *slowMix) epoch(t *rapid.T, e int64) (all []int64, owners []int) {
	if s.Stop != Repeat { // every epoch begins all members anew
		for d := range s.queues {
			s.queues[d] = nil
		}
	}
	places := int64(math.MaxInt64)
	if s.Stop == Repeat {
		if places = s.Num; places == 0 {
			for _, m := range s.Members {
				places += m.Samples
			}
		}
	}
	for c, m := range s.cycles() {
		counts := s.counts(c, m)
		var runs []int
		cut := (int64(c)*1000+int64(m))*s.Run > places
		short := 0
		for d, n := range counts {
			if n > counts[short] {
				short = d
			}
		}
		for d, n := range counts {
			for range n {
				runs = append(runs, d)
			}
		}
		if cut {
			i := slices.Index(runs, short)
			runs = append(slices.Delete(runs, i, i+1), short)
		}
		key := rng.New(s.seed).With(uint64(e)).With(wordMix).With(uint64(c))
		last := len(runs) - 1
		if cut {
			last--
		}
		for i := last; i > 0; i-- {
			j := int(key.Intn(uint64(i), int64(i)+1))
			runs[i], runs[j] = runs[j], runs[i]
		}
		for _, d := range runs {
			for range s.Run {
				if int64(len(all)) < places {
					all = append(all, s.next(t, d))
					owners = append(owners, d)
				}
			}
		}
	}
	return all, owners
}

// next takes the first of a member's queue.
func (s *slowMix) next(t *rapid.T, d int) int64 {
	if len(s.queues[d]) == 0 {
		policy := s.Members[d].Policy
		policy.Seed = rng.New(s.seed).With(wordMember).Uint64(uint64(d))
		plan, err := New(s.Members[d].Samples, policy)
		if err != nil {
			t.Fatal(err)
		}
		s.queues[d] = ids(plan.Epoch(s.numbers[d]))
		s.numbers[d]++
	}
	id := s.queues[d][0]
	s.queues[d] = s.queues[d][1:]
	for _, m := range s.Members[:d] {
		id += m.Samples
	}
	return id
}

func allSamples(m Mix) (n int64) {
	for _, x := range m.Members {
		n += x.Samples
	}
	return n
}
