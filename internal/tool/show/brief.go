package show

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Seconds is seconds with as many digits as matter, from microseconds to minutes.
func Seconds(s float64) string {
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
	return Time(time.Duration(min(max(s, 1), ages) * float64(time.Second)))
}

// Took is ms of something that took a moment at least.
func Took(s float64) string { return Seconds(max(s, 1e-9)) }

// almostOne second is one, in whole milliseconds.
const almostOne = 0.9995

// ages is a time in seconds that no run takes, and that a Duration still holds.
const ages = 1e9

// Percent is a share; one beyond all measure is written as it can be read.
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*min(max(share, -1e4), 1e4)) }
func Bytes(n float64) string       { return Size(int64(min(n, 1e18))) }

func Cores(n float64) string {
	if n == math.Trunc(n) {
		return Things(int(n), "core")
	}
	return fmt.Sprintf("%.2f cores", n)
}

// Things is n things.
func Things(n int, one string) string {
	many := one + "s"
	if strings.HasSuffix(one, "s") {
		many = one + "es"
	}
	return Count(int64(n), one, many)
}

// Of is n of so many samples that something was done to, with what they are: "3 of the
// 50 samples that were checked are damaged".
func Of(n, of int64, done, what string) string {
	switch {
	case n == 0:
		return "no sample that was " + done + " is " + what
	case of == 1:
		return "the only sample that was " + done + " is " + what
	case n == of:
		return fmt.Sprintf("all %d samples that were %s are %s", n, done, what)
	case n == 1:
		return fmt.Sprintf("1 of the %d samples that were %s is %s", of, done, what)
	}
	return fmt.Sprintf("%d of the %d samples that were %s are %s", n, of, done, what)
}

// OneLine is text that fits a line, cut at its end.
func OneLine(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > Width {
		return string(r[:Width-4]) + " ..."
	}
	return string(r)
}

// Shortened is a text of at most so many characters.
func Shortened(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return text
}

// Width is what reports are made for: a terminal that nobody has widened. Code
// to paste is never broken, and may be longer.
const Width = 80
