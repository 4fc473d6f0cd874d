package kernel

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// Every filter, width and distance, into other memory and in place: what image/png's
// paper says byte by byte, and nothing beside it.
func TestUnfilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		back := rapid.SampledFrom([]int{1, 2, 3, 4, 6, 8}).Draw(t, "back")
		n := back * rapid.IntRange(1, 90).Draw(t, "pixels")
		rows := rapid.IntRange(0, 40).Draw(t, "rows")
		noise := rapid.SliceOfN(rapid.Byte(), 97, 97).Draw(t, "noise")
		small := rapid.SampledFrom([]byte{1, 3, 255}).Draw(t, "small")
		only := rapid.IntRange(-1, 4).Draw(t, "only")
		src := make([]byte, rows*(n+1))
		for i := range src {
			src[i] = noise[i%97]/small + byte(i/97)
		}
		for y := range rows {
			if src[y*(n+1)] = noise[y] % 5; only >= 0 {
				src[y*(n+1)] = byte(only)
			}
		}
		up := bytes.Repeat(noise, n/97+2)[:n+8]
		want := make([]byte, rows*n)
		if done := unfilterGo(want, src, up, n, rows, back); done != rows {
			t.Fatalf("the twin did %d of %d rows", done, rows)
		}
		plain := slowUnfilter(src, up, n, back)
		room := bytes.Repeat([]byte{0xEE}, rows*n+32)
		if err := Unfilter(room[:rows*n:rows*n], bytes.Clone(src), up, n, back); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, plain) || !bytes.Equal(room[:rows*n], want) || !bytes.Equal(room[rows*n:], bytes.Repeat([]byte{0xEE}, 32)) {
			t.Fatal("other bytes")
		}
		for _, run := range []func(dst, src, up []byte, n, rows, back int) int{unfilter, unfilterGo} {
			place := append(make([]byte, UnfilterRows*n), src...)
			if run(place, place[UnfilterRows*n:], up, n, rows, back); !bytes.Equal(place[:rows*n], want) {
				t.Fatal("other bytes in place")
			}
		}
	})
}

// slowUnfilter is the formula of PNG, 9.2.
func slowUnfilter(src, up []byte, n, back int) (dst []byte) {
	for ; len(src) > 0; src = src[n+1:] {
		row := make([]byte, n)
		for i := range row {
			a, b, c := 0, int(up[i]), 0
			if i >= back {
				a, c = int(row[i-back]), int(up[i-back])
			}
			pa, pb, pc := max(b-c, c-b), max(a-c, c-a), max(a+b-2*c, 2*c-a-b)
			p := c
			if pa <= pb && pa <= pc {
				p = a
			} else if pb <= pc {
				p = b
			}
			row[i] = src[1+i] + byte([]int{0, a, b, (a + b) / 2, p}[src[0]])
		}
		dst = append(dst, row...)
		up = row
	}
	return dst
}

func TestUnfilterRefuses(t *testing.T) {
	src, up := make([]byte, 20*7), make([]byte, 14)
	src[19*7] = 5
	var bad FormatError
	if err := Unfilter(make([]byte, 20*6), src, up, 6, 3); !errors.As(err, &bad) {
		t.Errorf("filter 5: %v", err)
	}
	var job JobError
	for _, n := range []int{0, 5, 7} {
		if err := Unfilter(make([]byte, 20*6), src, up, n, 3); !errors.As(err, &job) {
			t.Errorf("rows of %d: %v", n, err)
		}
	}
	if err := Unfilter(make([]byte, 20*6), src, up[:6], 6, 3); !errors.As(err, &job) {
		t.Errorf("a short row above: %v", err)
	}
}
