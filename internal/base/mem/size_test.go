package mem

import "testing"

func TestSize(t *testing.T) {
	for n, want := range map[int64][2]string{
		0:           {"0 B", "0 B"},
		100:         {"100 B", "100 B"},
		1023:        {"1023 B", "1023 B"},
		1024:        {"1.0 KiB", "1 KiB"},
		1025:        {"1.0 KiB", "2 KiB"},
		5 << 10:     {"5.0 KiB", "5 KiB"},
		3<<20 - 100: {"3.0 MiB", "3 MiB"},
		3<<20 + 1:   {"3.0 MiB", "4 MiB"},
		5 << 29:     {"2.50 GiB", "3 GiB"},
		1 << 60:     {"1048576.00 TiB", "1048576 TiB"},
		1<<63 - 1:   {"8388608.00 TiB", "8388608 TiB"},
	} {
		if size, least := Size(n), AtLeast(n); size != want[0] || least != want[1] {
			t.Errorf("%d: %q, at least %q; want %q", n, size, least, want)
		}
	}
}
