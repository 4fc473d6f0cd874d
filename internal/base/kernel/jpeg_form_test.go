//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A marked is a JPEG cut at its markers: [0] is the start, the last the end; a scan's
// data go with the marker before them.
type marked [][]byte

func cutMarkers(t testing.TB, jpeg []byte) (m marked) {
	t.Helper()
	h, err := readHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	from := 0
	for at := 2; at < len(jpeg); {
		if at < h.scan {
			m = append(m, jpeg[from:at])
			from, at = at, at+2+int(binary.BigEndian.Uint16(jpeg[at+2:]))
			continue
		}
		if jpeg[at] == 0xff && at+1 < len(jpeg) && jpeg[at+1] != 0 {
			m = append(m, jpeg[from:at])
			from = at
			at++
		}
		at++
	}
	return append(m, jpeg[from:])
}

func (m marked) join() []byte { return bytes.Join(m, nil) }

// at finds the first part of a marker.
func (m marked) at(t testing.TB, marker byte) int {
	t.Helper()
	i := slices.IndexFunc(m, func(p []byte) bool { return p[1] == marker })
	if i < 0 {
		t.Fatalf("no marker %#x", marker)
	}
	return i
}

// each replaces every part of a marker.
func (m marked) each(marker byte, by func(part []byte) [][]byte) (all marked) {
	for _, p := range m {
		if p[1] == marker {
			all = append(all, by(p)...)
		} else {
			all = append(all, p)
		}
	}
	return all
}

func (m marked) insert(at int, parts ...[]byte) marked {
	return slices.Insert(slices.Clone(m), at, parts...)
}

func segmentOf(marker byte, content ...byte) []byte {
	n := len(content) + 2
	return append([]byte{0xff, marker, byte(n >> 8), byte(n)}, content...)
}

// tables cuts a segment of tables into its tables.
func tables(part []byte) (all [][]byte) {
	for b := part[4:]; len(b) > 0; {
		n := 65
		switch {
		case part[1] == 0xc4:
			n = 17
			for _, k := range b[1:17] {
				n += int(k)
			}
		case b[0]>>4 == 1:
			n = 129
		}
		all = append(all, b[:n])
		b = b[n:]
	}
	return all
}

// divided gives every table a segment of its own, joined puts all of them into one,
// in the position of the first.
func (m marked) divided(marker byte) marked {
	return m.each(marker, func(p []byte) (all [][]byte) {
		for _, t := range tables(p) {
			all = append(all, segmentOf(marker, t...))
		}
		return all
	})
}

func (m marked) joined(t testing.TB, marker byte) marked {
	var all []byte
	m.each(marker, func(p []byte) [][]byte { all = append(all, p[4:]...); return nil })
	first := m.at(t, marker)
	rest := m.each(marker, func([]byte) [][]byte { return nil })
	return rest.insert(first, segmentOf(marker, all...))
}

// formed are files of the kinds that matter for their form, by name.
func formed(t testing.TB) map[string][]byte {
	r := rand.New(rand.NewPCG(121, 122))
	return map[string][]byte{
		"4:2:0":         encodeKind(t, r, "4:2:0", 75, 50, encodeOptions{quality: 80}),
		"4:4:4 restart": encodeKind(t, r, "4:4:4", 75, 50, encodeOptions{quality: 90, restart: 4, optimize: true}),
		"gray restart":  encodeKind(t, r, "gray", 61, 43, encodeOptions{quality: 70, restart: 3}),
		"rgb":           encodeKind(t, r, "rgb", 33, 30, encodeOptions{quality: 85}),
		"progressive":   encodeKind(t, r, "4:2:0", 75, 50, encodeOptions{quality: 80, progressive: true}),
	}
}

// However a file arranges what it says, it shows the same picture.
func TestFormDoesNotMatter(t *testing.T) {
	long := bytes.Repeat([]byte{0xff, 0xd9, 0xff, 0xda, 0xff, 0x00, 0xff, 0xd0}, 8191)
	other := func(p []byte) [][]byte { // the tables with other contents, before themselves
		q := bytes.Clone(p)
		for at := 4; at < len(q); at += len(tables(p)[0]) {
			for i := 1; i < 65 && at+i < len(q); i++ {
				q[at+i] ^= 0x15
			}
		}
		return [][]byte{q, p}
	}
	ways := map[string]func(m marked) []byte{
		"a fill byte before every marker": func(m marked) []byte {
			for i := 1; i < len(m); i++ {
				m[i] = append([]byte{0xff}, m[i]...)
			}
			return m.join()
		},
		"many fill bytes before every marker": func(m marked) []byte {
			for i := 1; i < len(m); i++ {
				m[i] = append(bytes.Repeat([]byte{0xff}, 40*i), m[i]...)
			}
			return m.join()
		},
		"fill bytes before the end": func(m marked) []byte {
			m[len(m)-1] = append(bytes.Repeat([]byte{0xff}, 30000), m[len(m)-1]...)
			return m.join()
		},
		"application segments of all sorts": func(m marked) []byte {
			sos := m.at(t, 0xda)
			m = m.insert(sos, segmentOf(0xe1, long...), segmentOf(0xfe), segmentOf(0xed, 0xff), segmentOf(0xe1, long[:9]...))
			m = m.insert(2, segmentOf(0xe2, long...), segmentOf(0xe0, []byte("JFXX\x00\x10\xff\xd8\xff\xd9")...), segmentOf(0xef))
			return m.insert(1, segmentOf(0xe1, long[:4]...), segmentOf(0xe1)).join()
		},
		"Huffman tables in segments of their own":      func(m marked) []byte { return m.divided(0xc4).join() },
		"quantisation tables in segments of their own": func(m marked) []byte { return m.divided(0xdb).join() },
		"quantisation tables in one segment":           func(m marked) []byte { return m.joined(t, 0xdb).join() },
		"quantisation tables twice, first others":      func(m marked) []byte { return m.each(0xdb, other).join() },
		"tables twice": func(m marked) []byte {
			twice := func(p []byte) [][]byte { return [][]byte{p, p} }
			return m.each(0xdb, twice).each(0xc4, twice).join()
		},
		"the frame header first": func(m marked) []byte {
			i := slices.IndexFunc(m, func(p []byte) bool { return p[1] >= 0xc0 && p[1] <= 0xc2 })
			f := m[i]
			return slices.Delete(m, i, i+1).insert(1, f).join()
		},
		"bytes after the end": func(m marked) []byte { return append(m.join(), long[:800]...) },
		"0xff after the end":  func(m marked) []byte { return append(m.join(), bytes.Repeat([]byte{0xff}, 5000)...) },
		"zeros after the end": func(m marked) []byte { return append(m.join(), make([]byte, 70000)...) },
		"another picture":     func(m marked) []byte { return append(m.join(), m.join()...) },
		"an interval said twice": func(m marked) []byte {
			if i := slices.IndexFunc(m, func(p []byte) bool { return p[1] == 0xdd }); i > 0 {
				m = m.insert(i, segmentOf(0xdd, 0, 99))
			}
			return m.join()
		},
		"a number of lines after the scan": func(m marked) []byte {
			f := m[slices.IndexFunc(m, func(p []byte) bool { return p[1] >= 0xc0 && p[1] <= 0xc2 })]
			return m.insert(len(m)-1, segmentOf(0xdc, f[5], f[6])).join()
		},
	}
	each(t, func(t *testing.T, l *Lane) {
		for name, jpeg := range formed(t) {
			want := bytes.Clone(run(t, l, Job{JPEG: jpeg}))
			h, _ := ReadHeader(jpeg)
			inside := []Step{{Op: OpCrop, X: h.W / 3, Y: h.H / 3, W: h.W / 3, H: h.H / 2}}
			wantInside := run(t, l, Job{JPEG: jpeg, Steps: inside})
			for how, way := range ways {
				if l.target == "go" && strings.Contains(how, "lines after") {
					continue // the standard library knows no such segment
				}
				bad := way(slices.Clone(cutMarkers(t, jpeg)))
				for _, c := range []struct {
					steps []Step
					want  []byte
				}{{nil, want}, {inside, wantInside}} {
					j := Job{JPEG: bad, Steps: c.steps, Dst: make([]byte, len(c.want))}
					if err := l.Run(&j); err != nil {
						t.Errorf("%s, %s: %v", name, how, err)
					} else if d := diff(j.Dst, c.want); d != "" {
						t.Errorf("%s, %s: %s", name, how, d)
					}
				}
			}
		}
	})
}

// Values of 16 bits mean the same as those of 8, and what 8 cannot express.
func TestWideQuantisation(t *testing.T) {
	reference := newReference()
	defer reference.Close()
	widened := func(jpeg []byte, times int) []byte {
		m := cutMarkers(t, jpeg).each(0xdb, func(p []byte) (all [][]byte) {
			for _, table := range tables(p) {
				wide := []byte{0x10 | table[0]}
				for _, v := range table[1:] {
					wide = binary.BigEndian.AppendUint16(wide, uint16(int(v)*times))
				}
				all = append(all, segmentOf(0xdb, wide...))
			}
			return all
		})
		if i := slices.IndexFunc(m, func(p []byte) bool { return p[1] == 0xc0 }); i >= 0 {
			m[i] = append([]byte{0xff, 0xc1}, m[i][2:]...)
		}
		return m.join()
	}
	each(t, func(t *testing.T, l *Lane) {
		for name, jpeg := range formed(t) {
			want := bytes.Clone(run(t, l, Job{JPEG: jpeg}))
			if d := diff(run(t, l, Job{JPEG: widened(jpeg, 1)}), want); d != "" {
				t.Errorf("%s: %s", name, d)
			}
			for _, times := range []int{7, 31, 200, 257} {
				wide := widened(jpeg, times)
				if _, taken := readFrame(wide); !taken && !byLibjpeg(l) {
					continue // of these the standard library makes something else
				}
				if d := diff(run(t, l, Job{JPEG: wide}), run(t, reference.of(wide), Job{JPEG: wide})); d != "" {
					t.Errorf("%s: values %d times as large: %s", name, times, d)
				}
			}
		}
	})
}

// What a file must not be, and what is said of it.
func TestFormRefused(t *testing.T) {
	withHeight := func(m marked, h byte) marked {
		i := slices.IndexFunc(m, func(p []byte) bool { return p[1] >= 0xc0 && p[1] <= 0xc2 })
		m[i] = bytes.Clone(m[i])
		m[i][5], m[i][6] = 0, h
		return m
	}
	for how, c := range map[string]struct {
		way  func(m marked) []byte
		text string
	}{
		"no height":                       {func(m marked) []byte { return withHeight(m, 0).join() }, "DNL"},
		"a height that comes later":       {func(m marked) []byte { return withHeight(m, 0).insert(len(m)-1, segmentOf(0xdc, 0, 50)).join() }, "DNL"},
		"no end":                          {func(m marked) []byte { return m[:len(m)-1].join() }, "end marker"},
		"no end, but 0xff":                {func(m marked) []byte { return append(m[:len(m)-1].join(), 0xff, 0xff) }, "end marker"},
		"an end in a comment only":        {func(m marked) []byte { return m[:len(m)-1].insert(1, segmentOf(0xfe, 0xff, 0xd9)).join() }, "end marker"},
		"the end before the scan":         {func(m marked) []byte { return m.insert(m.at(t, 0xda), []byte{0xff, 0xd9}).join() }, "before its picture"},
		"a segment longer than the file":  {func(m marked) []byte { return append(m[:2].join(), 0xff, 0xe5, 0xff, 0xff, 1, 2, 3) }, "segment"},
		"a segment shorter than its size": {func(m marked) []byte { return m.insert(1, []byte{0xff, 0xe5, 0, 1}).join() }, "segment"},
	} {
		each(t, func(t *testing.T, l *Lane) {
			for name, jpeg := range formed(t) {
				h, _ := ReadHeader(jpeg)
				err := l.Run(&Job{JPEG: c.way(slices.Clone(cutMarkers(t, jpeg))), Dst: make([]byte, 3*h.W*h.H)})
				var f FormatError
				if !errors.As(err, &f) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			}
		})
	}
}

// Restart markers count from 0 to 7 and round. Any that does not is an error
// wherever a picture is read through it.
func TestRestartsOutOfStep(t *testing.T) {
	r := rand.New(rand.NewPCG(131, 132))
	jpeg := encodeKind(t, r, "4:4:4", 160, 96, encodeOptions{quality: 80, restart: 5}) // 4 segments a row, 48
	good := cutMarkers(t, jpeg)
	first := slices.IndexFunc(good, func(p []byte) bool { return p[1] == 0xd0 })
	numbered := func(m marked, i int, number byte) {
		m[first+i] = append([]byte{0xff, 0xd0 | number&7}, m[first+i][2:]...)
	}
	for how, way := range map[string]func(m marked) marked{
		"all one too high": func(m marked) marked {
			for i := range 47 {
				numbered(m, i, byte(i+1))
			}
			return m
		},
		"all zero": func(m marked) marked {
			for i := range 47 {
				numbered(m, i, 0)
			}
			return m
		},
		"counting back": func(m marked) marked {
			for i := range 47 {
				numbered(m, i, byte(47-i))
			}
			return m
		},
		"two exchanged":           func(m marked) marked { numbered(m, 20, 5); numbered(m, 21, 4); return m },
		"one wrong":               func(m marked) marked { numbered(m, 30, 2); return m },
		"one segment gone":        func(m marked) marked { return slices.Delete(m, first+17, first+18) },
		"one segment twice":       func(m marked) marked { return m.insert(first+17, m[first+17]) },
		"two segments exchanged":  func(m marked) marked { m[first+8], m[first+9] = m[first+9], m[first+8]; return m },
		"a round of them gone":    func(m marked) marked { return slices.Delete(m, first+12, first+20) },
		"more of them at the end": func(m marked) marked { return m.insert(len(m)-1, m[first+47-8:first+47]...) },
		"an interval too long":    func(m marked) marked { i := m.at(t, 0xdd); m[i] = segmentOf(0xdd, 0, 6); return m },
		"an interval too short":   func(m marked) marked { i := m.at(t, 0xdd); m[i] = segmentOf(0xdd, 0, 4); return m },
		"no interval":             func(m marked) marked { i := m.at(t, 0xdd); return slices.Delete(m, i, i+1) },
	} {
		each(t, func(t *testing.T, l *Lane) {
			if l.target == "go" {
				return // the standard library resumes as it likes
			}
			bad := way(slices.Clone(good)).join()
			err := l.Run(&Job{JPEG: bad, Dst: make([]byte, 3*160*96)})
			if how == "more of them at the end" {
				return // they are after the last row
			}
			var f FormatError
			if !errors.As(err, &f) {
				t.Errorf("%s: %v", how, err)
			} else if how != "an interval too short" && !strings.Contains(err.Error(), "near byte") {
				t.Errorf("%s: and where? %v", how, err)
			}
		})
	}
}

// A marker in a wrong position is found by a decoder that passes it, even on the
// way from one segment to another; one with the wrong number is never a target. A
// wrong interval that divides the picture into as many segments is damage for every
// region, even if each segment is left before its end.
func TestLiedInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(135, 136))
	jpeg := encodeKind(t, r, "4:4:4", 448, 304, encodeOptions{quality: 85, restart: 56}) // a row
	if _, taken := readFrame(jpeg); !taken {
		t.Fatal("not one of ours")
	}
	at := bytes.Index(jpeg, []byte{0xff, 0xdd, 0, 4, 0, 56})
	for _, interval := range []byte{55, 57} {
		bad := bytes.Clone(jpeg)
		bad[at+5] = interval
		each(t, func(t *testing.T, l *Lane) {
			for range 20 {
				box := Step{Op: OpCrop, X: r.IntN(448 - 32), Y: r.IntN(304 - 16), W: 32, H: 16}
				var f FormatError
				if err := l.Run(&Job{JPEG: bad, Steps: []Step{box}, Dst: make([]byte, 3*32*16)}); !errors.As(err, &f) {
					t.Errorf("%d for 56, %+v: %v", interval, box, err)
				}
			}
		})
	}
}

// A header with millions of pairs that are not markers is damage, and costs no more
// work.
func TestBytesBetweenSegments(t *testing.T) {
	jpeg := samples(t)["420"]
	bad := slices.Concat(jpeg[:2], bytes.Repeat([]byte{0xff, 0}, 12<<20), jpeg[2:])
	var f FormatError
	if _, err := ReadHeader(bad); !errors.As(err, &f) || !strings.Contains(err.Error(), "at byte 2 of") {
		t.Error(err)
	}
}

func TestStrayMarkers(t *testing.T) {
	r := rand.New(rand.NewPCG(133, 134))
	jpeg := encodeKind(t, r, "4:4:4", 160, 96, encodeOptions{quality: 80, restart: 5}) // 4 segments a row, 48
	good := cutMarkers(t, jpeg)
	first := slices.IndexFunc(good, func(p []byte) bool { return p[1] == 0xd0 })
	right := []Step{{Op: OpCrop, X: 120, Y: 8, W: 40, H: 80}} // the last segment of each row
	for how, bad := range map[string][]byte{
		"a restart out of step":       good.insert(first+10, []byte{0xff, 0xd7}).join(),
		"segments twice":              good.insert(first+11, good[first+8:first+11]...).join(),
		"a segment after a segment":   good.insert(first+7, segmentOf(0xe5, 1, 2, 3)).join(), // of row 1, the last
		"a marker after that segment": good.insert(first+7, []byte{0xff, 0x42}).join(),
	} {
		each(t, func(t *testing.T, l *Lane) {
			if l.target == "go" {
				return
			}
			for _, steps := range [][]Step{nil, right} {
				n := 3 * 160 * 96
				if steps != nil {
					n = 3 * 40 * 80
				}
				var f FormatError
				if err := l.Run(&Job{JPEG: bad, Steps: steps, Dst: make([]byte, n)}); !errors.As(err, &f) {
					t.Errorf("%s, %d steps: %v", how, len(steps), err)
				}
			}
		})
	}
}
