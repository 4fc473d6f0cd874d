package source

import (
	"context"
	"time"
)

// Settle waits until the time of an object is old enough to be a witness: what
// changes within the same tick of the clock keeps its time, and could not be
// told from what was there. A tick is 20 ms, or the two seconds of file systems
// that keep no fractions. A time in the future, or 0, is not waited for: 0 is that of
// objects whose versions are not made of times.
func Settle(ctx context.Context, obj Info) error {
	mtime := obj.Time
	tick := 20 * time.Millisecond
	if mtime%int64(time.Second) == 0 {
		tick = 2 * time.Second
	}
	age := time.Since(time.Unix(0, mtime))
	if age < 0 || age >= tick {
		return ctx.Err()
	}
	return Sleep(ctx, tick-age)
}

// Sleep returns after that long, or when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
