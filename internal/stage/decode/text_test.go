package decode

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// What ReadHeader says of every fixture.
func TestHeaders(t *testing.T) {
	var out bytes.Buffer
	for _, f := range fixtures(t) {
		h, err := ReadHeader(f.data)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		fmt.Fprintf(&out, "%-36s %-4s %3d x %-3d %d\n", f.name, h.Kind, h.W, h.H, h.Components)
	}
	stagetest.Golden(t, "headers.txt", out.Bytes())
}

// What is said of a file that ends early: the texts are read by people.
func TestTruncationTexts(t *testing.T) {
	d := NewDecoder()
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, f := range fixtures(t) {
		for _, part := range []int{1, 3, 5, 7} {
			_, err := d.Pixels(f.data[:len(f.data)*part/8], false)
			if err == nil {
				continue
			}
			// One of each, whatever its numbers.
			text := strings.Map(func(r rune) rune {
				if '0' <= r && r <= '9' {
					return -1
				}
				return r
			}, err.Error())
			if seen[text] {
				continue
			}
			seen[text] = true
			kind := "damaged"
			if _, ok := err.(kernel.UnsupportedError); ok {
				kind = "unsupported"
			}
			fmt.Fprintf(&out, "%s, %d/8: %s: %v\n", f.name, part, kind, err)
		}
	}
	stagetest.Golden(t, "truncated.txt", out.Bytes())
}
