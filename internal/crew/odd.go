package crew

import (
	"slices"

	"github.com/stoker-data/stoker/internal/fill"
)

// Samples that are not like the first sample of all.
//
// The columns of batches are those of the first sample. A batch whose samples have
// another structure, but one in common, is one that torch delivers: pictures at several
// scales, a last batch of another length. So a row that does not fit is bad only if a row
// of its batch does fit. If none does, one worker makes the batch as a whole, and decides
// whether its samples are like each other. Until that is known the odd rows are held back:
// none of the batch has been returned but bad ones, so nothing has to be undone. Samples
// that replace others do not decide, and are held back too: they come from anywhere.

// maxSpell is how many batches are made as wholes, at most, before rows are tried again.
const maxSpell = 255

// sorted appends to back what goes back of a row that a worker has returned. c.mu is held.
func (c *Crew) sorted(back []finished, j *job, f finished, odd bool) []finished {
	switch {
	case j.filled || j.b.Failed.Load():
	case odd || f.err == nil && f.t.Attempt > 0:
		j.odd = append(j.odd, f)
		c.first(j)
		return back
	case f.err == nil:
		j.filled = true
	}
	begin := len(back)
	back = append(back, f)
	if j.filled {
		back = append(back, j.odd...)
		j.odd = nil
	}
	for _, o := range back[begin:] {
		if o.err != nil {
			j.miss(o.t.Row)
			j.limbo++
		}
	}
	return back
}

// miss marks a row that is returned as bad: it has no sample of its own, unless it comes
// back with another one.
func (j *job) miss(row int) {
	if j.bad == nil {
		j.bad = map[int]bool{}
	}
	j.bad[row] = true
}

// decided follows when n rows that were marked have been returned: they have come back with
// other samples by now, or will not. m has asked for nothing else meanwhile.
func (c *Crew) decided(m *member, j *job, n int) {
	c.mu.Lock()
	j.limbo -= n
	back := c.rejoin(m, j)
	c.settle(j)
	c.assign()
	back = append(back, c.returned()...)
	c.mu.Unlock()
	c.finish(back)
}

// rejoin makes a batch a whole one if all its rows are back, and none fits. m may have it
// first: it may still have the samples. It returns what goes back otherwise. c.mu is held.
func (c *Crew) rejoin(m *member, j *job) (back []finished) {
	if len(j.odd) == 0 || j.whole != nil || j.undecided() || j.limbo > 0 || j.out+len(j.todo)+j.awaits > 0 || j.b.Gone.Load() || j.b.Failed.Load() {
		return nil
	}
	if !slices.ContainsFunc(j.odd, func(f finished) bool { return f.t.Attempt == 0 }) {
		back, j.odd, j.filled = j.odd, nil, true // nothing but replacements
		return back
	}
	c.spell = min(2*c.spell+1, maxSpell)
	c.ahead = c.spell
	j.whole = &whole{alike: true}
	for _, f := range j.odd {
		j.todo = append(j.todo, f.t)
	}
	j.odd = nil
	slices.SortFunc(j.todo, func(a, b *fill.Task) int { return a.Row - b.Row })
	c.jobs = slices.DeleteFunc(c.jobs, func(o *job) bool { return o == j })
	if m == nil || m.leaves || m.ended || c.closing {
		c.first(j)
		return nil
	}
	c.giveWhole(m, j)
	return nil
}

// unlike makes a batch a whole one if batches before it had to be: samples that do not fit
// are made twice otherwise. It returns false if rows are to be handed out. c.mu is held.
func (c *Crew) unlike(j *job) bool {
	if c.ahead == 0 || j.filled || j.limbo+j.out+len(j.odd)+len(j.bad) > 0 {
		return false
	}
	c.ahead--
	j.whole = &whole{alike: true}
	return true
}

// fits follows when rows of a batch are back. c.mu is held.
func (c *Crew) fits(j *job) {
	if j.filled && j.out+len(j.todo)+j.awaits == 0 && c.ahead == 0 {
		c.spell /= 2
	}
}
