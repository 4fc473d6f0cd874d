package system

import "testing"

// What the kernel is asked to drop are whole pages, of whatever size.
func TestPages(t *testing.T) {
	for _, c := range []struct{ page, at, n, from, length int64 }{
		{4 << 10, 8 << 10, 4 << 10, 8 << 10, 4 << 10},
		{4 << 10, 5000, 1, 4 << 10, 4 << 10},
		{4 << 10, 4095, 2, 0, 8 << 10},
		{64 << 10, 68 << 10, 4 << 10, 64 << 10, 64 << 10},
		{64 << 10, 60 << 10, 128 << 10, 0, 192 << 10},
		{16 << 10, 0, 16 << 10, 0, 16 << 10},
	} {
		if from, length := pages(c.at, c.n, c.page); from != c.from || length != c.length {
			t.Errorf("%d bytes at %d, pages of %d: %d at %d, want %d at %d", c.n, c.at, c.page, length, from, c.length, c.from)
		}
	}
}
