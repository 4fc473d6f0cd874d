package doctor

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// ms is seconds with as many digits as matter, from microseconds to minutes.
func ms(s float64) string {
	switch {
	case s <= 0:
		return "0 ms"
	case s < 0.5e-6:
		return "under 1 us"
	case s < 0.001:
		return fmt.Sprintf("%.0f us", s*1e6)
	case s < 0.00995:
		return fmt.Sprintf("%.1f ms", s*1e3)
	case s < almostOne:
		return fmt.Sprintf("%.0f ms", s*1e3)
	}
	return show.Time(time.Duration(min(max(s, 1), ages) * float64(time.Second)))
}

// took is ms of something that took a moment at least.
func took(s float64) string { return ms(max(s, 1e-9)) }

// almostOne second is one, in whole milliseconds.
const almostOne = 0.9995

// ages is a time in seconds that no run takes, and that a Duration still holds.
const ages = 1e9

// percent is a share; one beyond all measure is written as it can be read.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*min(max(share, -1e4), 1e4)) }
func size(n float64) string        { return show.Size(int64(min(n, most))) }

func cores(n float64) string {
	if n == math.Trunc(n) {
		return count(int(n), "core")
	}
	return fmt.Sprintf("%.2f cores", n)
}

// count is n things.
func count(n int, one string) string {
	many := one + "s"
	if strings.HasSuffix(one, "s") {
		many = one + "es"
	}
	return show.Count(int64(n), one, many)
}

// oneLine is text that fits a line, cut at its end.
func oneLine(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > width {
		return string(r[:width-4]) + " ..."
	}
	return string(r)
}

// shortened is a text of at most so many characters.
func shortened(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return text
}
