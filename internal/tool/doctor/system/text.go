package system

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// text is a small file without white space at its ends; empty if it is not there.
func text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// pairs reads lines of a name and a number.
func pairs(s string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) >= 2 {
			if n, err := strconv.ParseFloat(f[1], 64); err == nil {
				out[strings.TrimSuffix(f[0], ":")] = n
			}
		}
	}
	return out
}
