package show

import "testing"

func TestTimesInWords(t *testing.T) {
	for s, want := range map[float64]string{
		-1: "0 ms", 0: "0 ms", 1e-9: "under 1 us", 4.9e-7: "under 1 us", 5.1e-7: "1 us", 2e-6: "2 us", 0.0009: "900 us", 0.0012: "1.2 ms", 0.0123: "12 ms", 0.9994: "999 ms",
		0.9995: "1.0 s", 0.99969: "1.0 s", 0.999999: "1.0 s", 1: "1.0 s", 12.3: "12.3 s",
	} {
		if got := Seconds(s); got != want {
			t.Errorf("%v s is %q, not %q", s, got, want)
		}
		if got := Took(s); s >= 1e-9 && got != want {
			t.Errorf("%v s took %q, not %q", s, got, want)
		}
	}
}

// Of has the verb's form for its numbers.
func TestOf(t *testing.T) {
	for want, n := range map[string][2]int64{
		"no sample that was read is damaged":            {0, 9},
		"the only sample that was read is damaged":      {1, 1},
		"1 of the 9 samples that were read is damaged":  {1, 9},
		"3 of the 9 samples that were read are damaged": {3, 9},
		"all 9 samples that were read are damaged":      {9, 9},
	} {
		if got := Of(n[0], n[1], "read", "damaged"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
