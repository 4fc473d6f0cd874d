package show

import (
	"testing"
	"time"
)

func TestShow(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Number(0), "0"},
		{Number(999.4), "999"},
		{Number(999.6), "1,000"},
		{Number(-1234567), "-1,234,567"},
		{Number(-999), "-999"},
		{Count(1, "class", "classes"), "1 class"},
		{Count(1200, "class", "classes"), "1,200 classes"},
		{Size(0), "0 B"},
		{Size(1023), "1023 B"},
		{Size(1536), "1.5 KiB"},
		{Size(3 << 20), "3.0 MiB"},
		{Size(5 << 30), "5.00 GiB"},
		{Size(7 << 40), "7.00 TiB"},
		{Time(250 * time.Microsecond), "250 us"},
		{Time(999 * time.Millisecond), "999 ms"},
		{Time(1500 * time.Millisecond), "1.5 s"},
		{Time(125 * time.Second), "2 min 05 s"},
		{Time(3*time.Hour + 7*time.Minute), "3 h 07 min"},
	} {
		if c.got != c.want {
			t.Errorf("%q, not %q", c.got, c.want)
		}
	}
}
