package fetch

import "slices"

// kept is a chunk that is held for later groups, with one reference. step is the last step
// that is known to need it.
type kept struct {
	*chunk
	step int64
}

// ahead learns in until how long chunks are needed by later groups, and appends what else
// these need, with numbers from first on, if more may be kept. What is in a chunk that is not
// kept is left out: it is read again only if the chunk is gone by then.
func (p *Plan) ahead(pieces []piece, later []Need, first int, until map[*chunk]int64, more bool) []piece {
	file, planned := -1, false
	for i, need := range later {
		for j, e := range need.Extents {
			if e.File != file {
				file, planned = e.File, !p.small || p.f.storeOf(e.File).linkNow() != nil
			}
			if !planned {
				continue
			}
			if c := p.find(e); c != nil {
				until[c] = max(until[c], need.Step)
				continue
			}
			if more {
				pieces = append(pieces, piece{ext: e, sample: need.Sample, req: first + i, index: j, later: true})
			}
		}
	}
	return pieces
}

// allows returns what a group that reads so many bytes may read for later groups: for short
// groups little, because the first batches wait for them.
func (p *Plan) allows(group int64) allowance {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	return allowance{
		keep:  min(p.share/keptShare, 2*group) - p.keeps,
		holes: f.ahead.limit(f) - f.ahead.used - group,
	}
}

// expire removes and returns the kept chunks that no group after needs will use; all of them
// if all is set. Fetcher.mu is held; the caller releases the chunks without it.
func (p *Plan) expire(all bool, needs []Need) (old []kept) {
	p.kept = slices.DeleteFunc(p.kept, func(k kept) bool {
		end := all || k.step < p.from || len(needs) > 0 && k.step <= needs[len(needs)-1].Step
		if end {
			old = append(old, k)
			p.keeps -= k.length
		}
		return end
	})
	return old
}

func release(chunks []kept) {
	for _, k := range chunks {
		k.release()
	}
}
