package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
)

// maxAttempts is how many samples are tried for one place under Replace.
const maxAttempts = 16

// wordReplace separates the randomness of replacements from that of augmentation.
const wordReplace = 1<<63 + 1

// SampleError returns the error of a sample as users see it, and whether on_bad may
// skip it: damage may be skipped, a failing source may not.
func (b *Batch) SampleError(t *fill.Task, err error) (*errs.Error, bool) {
	e := *b.m.data.Located(err, t.Req.Sample)
	e.Where.Moment = &errs.Moment{Epoch: b.walk.Epoch, Step: b.walk.From + b.Step, Rank: b.m.spec.Rank}
	if overall := (fill.Overall{}); errors.As(err, &overall) {
		e.Where.Sample = errs.Number{}
		return &e, false
	}
	switch {
	case e.Code == errs.NotFound:
		e.Code = errs.Changed
		e.Hint = "it was removed after the dataset was indexed: put it back, or start again without it; on_bad=\"skip\" skips such samples"
	case errors.Is(err, fs.ErrPermission):
		e.Code = errs.Forbidden
		e.Hint = "give the user who runs the training permission to read it, or pass on_bad=\"skip\""
	}
	if e.Code == errs.Changed {
		part, _ := b.m.data.Of(t.Req.Sample)
		part.Stale() // the next start makes a new index
	}
	var user *errs.CodeError
	if errors.As(err, &user) {
		return &e, user.Skippable
	}
	class := errs.Classes[e.Code]
	if class.Python == "DataError" && e.Hint == "" {
		e.Hint = "replace the file, or pass on_bad=\"skip\" or \"replace\" to go on without it"
	}
	if class.Python == "SourceError" && e.Hint == "" {
		e.Hint = "check the storage: a failed read never counts as a bad sample, so on_bad does not skip it"
	}
	return &e, class.Python == "DataError"
}

// OnBad applies the policy to a sample that failed, with what SampleError returned, and
// reports whether the task continues with another sample. One at a time for each batch.
func (b *Batch) OnBad(t *fill.Task, e *errs.Error, may bool) (again bool) {
	if !may || b.m.spec.OnBad.Policy == spec.Fail {
		b.fail(e)
		return false
	}
	// A replacement that is bad too counts in its own place of the epoch; a sample
	// that was split counts with its first run.
	if t.Attempt == 0 && t.From == 0 {
		b.Bad = append(b.Bad, Bad{Place: t.Place, Sample: t.Req.Sample, Put: -1, Err: e})
	}
	return (b.m.spec.OnBad.Policy == spec.Replace || t.Attempt > 0) && b.another(t, e)
}

// another gives a task another sample of the epoch, chosen by key, unless too many
// were bad. If batches are of one dataset each, the other sample is of that
// dataset.
func (b *Batch) another(t *fill.Task, e *errs.Error) bool {
	if t.Attempt++; t.Attempt > maxAttempts {
		b.fail(errs.New(errs.BadLimit, "%d samples in a row, drawn for one place, are bad; the last: %s", maxAttempts, e.What).
			At(e.Where).Because(e.Cause).
			Try("most of this dataset cannot be read: %s", look(e)))
		return false
	}
	epoch, key := b.walk.Order, t.Key.With(wordReplace)
	t.Req.Sample = epoch.At(epoch.Places() + key.Intn(uint64(t.Attempt), epoch.Places()))
	if b.m.spec.Mix.Batches == spec.BatchesSingle {
		own, _ := b.m.data.Of(t.Sample)
		t.Req.Sample = own.First + key.Intn(uint64(t.Attempt), own.N)
	}
	return true
}

// look says how to look at samples like e's.
func look(e *errs.Error) string {
	var user *errs.CodeError
	if !errors.As(e.Cause, &user) {
		return "list what is damaged with `stoker inspect --all`, and repair it"
	}
	if sample, known := e.Where.Sample.Get(); known {
		return fmt.Sprintf("its code raised the error, so call dataset[%d] by itself to see why", sample)
	}
	return "its code raised the error, so call that by itself to see why"
}

// FillIn finds a row to copy from for a batch in which every sample is skipped:
// another sample is decoded into the row of the last one, which stays marked as not
// valid. Last means last by place, because which task ends last depends on the
// lanes. It returns nil if there is nothing to do. One at a time for each batch.
func (b *Batch) FillIn() *fill.Task {
	if b.Gone.Load() || b.m.spec.Batch.Pack > 0 || len(b.Bad) < b.Rows || b.Err != nil || slices.Contains(b.good[:b.Rows], true) {
		return nil
	}
	t := &b.Tasks[b.Rows-1]
	if !b.another(t, errs.From(b.Bad[0].Err)) {
		return nil
	}
	return t
}

// Limit returns the error of a pass with too many bad samples, bad of the seen ones so far,
// the last of which had the error last; nil: the Spec allows that many. A share of them is
// judged from 100 samples on, or at the end of the pass.
func (m *Maker) Limit(bad, seen int64, end bool, last *errs.Error) error {
	on := m.spec.OnBad
	tooMany := on.MaxBad > 0 && bad > on.MaxBad
	enough := seen >= 100 || end
	tooOften := on.MaxBadRate > 0 && enough && float64(bad) > on.MaxBadRate*float64(seen)
	if !tooMany && !tooOften {
		return nil
	}
	return errs.New(errs.BadLimit, "%d of %d samples of this pass are bad, more than on_bad allows; the last: %s", bad, seen, last.What).
		At(last.Where).Because(last.Cause).
		Try("%s; or raise max_bad or max_bad_rate", look(last))
}
