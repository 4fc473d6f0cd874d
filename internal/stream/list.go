package stream

import (
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// CheckList rejects a list, which a user's sampler gave, with samples that the dataset does not
// have, or with batches that do not add up.
func (l *Stream) CheckList(list order.List) error {
	for i, id := range list.IDs {
		if list.Items != nil && id == list.Place+int64(i) {
			continue
		}
		if id < 0 || id >= l.data.Len() {
			return errs.New(errs.Config, "the sampler gave sample %d at place %d, but the dataset has %s", id, list.Place+int64(i), errs.Many(l.data.Len(), "sample")).
				Try("a sampler gives numbers from 0 to len(dataset) - 1")
		}
	}
	left := int64(len(list.IDs))
	for i, n := range list.Cuts {
		if n < 1 || n > left {
			return errs.New(errs.Config, "the batch sampler announced %d samples for batch %d, but only %d of its %d ids are left", n, list.Item+int64(i), left, len(list.IDs)).
				Try("every batch of a batch sampler needs at least one sample")
		}
		left -= n
	}
	if list.Cuts != nil && left > 0 {
		return errs.New(errs.Config, "the batch sampler gave %d ids, of which %d are in no batch", len(list.IDs), left)
	}
	if b := l.spec.Batch; b.ByLength() {
		return errs.New(errs.Config, "a sampler decides the order, so bucket %d, tokens %d, pack %d cannot change it", b.Bucket, b.Tokens, b.Pack).
			Try("leave the sampler out, or make batches by length in a batch sampler")
	}
	return nil
}
