// Package show writes numbers as people read them: the tools' reports are to
// look alike.
package show

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Number is n rounded, with a comma before every three digits.
func Number(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	start := 0
	if s[0] == '-' {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count is n things: "1 class", "1,200 classes".
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(float64(n)) + " " + many
}

// Size is bytes.
func Size(n int64) string { return mem.Size(n) }

// Time is a duration with as many digits as matter.
func Time(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// ShellWord writes a path as shells read it.
func ShellWord(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_./=,:@%+-", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
