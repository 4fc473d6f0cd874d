package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// pictured is a picture as a worker sends it.
func pictured(p Picture) []byte {
	b := append(append(u32(uint32(p.Column)), u32(uint32(p.W))...), append(u32(uint32(p.H)), u32(uint32(p.C))...)...)
	planes := byte(0)
	if p.Planes {
		planes = 1
	}
	b = append(b, planes)
	for _, v := range append(p.Scale[:], p.Bias[:]...) {
		b = append(b, u32(math.Float32bits(v))...)
	}
	return b
}

// answers draws a frame of a worker, and what it says.
func answers(t *rapid.T) (kind byte, payload []byte, want any) {
	data := rapid.SliceOfN(rapid.Byte(), 0, 20)
	number := rapid.Uint64()
	row := rapid.Uint32()
	switch kind = byte(rapid.IntRange(fromHello, fromEnded).Draw(t, "kind")); kind {
	case fromHello:
		pid := row.Draw(t, "pid")
		return kind, u32(pid), Hello(pid)
	case fromShape:
		s := Shape{Batch: number.Draw(t, "batch"), Row: row.Draw(t, "row"), Sizes: []int64{}, Structure: data.Draw(t, "structure"), Pictures: []Picture{}}
		b := append(u64(s.Batch), u32(s.Row)...)
		sizes := rapid.SliceOfN(rapid.Int64Range(Loose, maxSample/4), 0, 4).Draw(t, "sizes")
		b = append(b, u32(uint32(len(sizes)))...)
		for _, n := range sizes {
			b = append(b, u64(uint64(n))...)
			s.Sizes = append(s.Sizes, n)
		}
		many := 0
		if pictured := rapid.Bool().Draw(t, "pictured"); pictured {
			many = 1
			p := Picture{Column: len(sizes), W: rapid.IntRange(1, 9).Draw(t, "w"), H: rapid.IntRange(1, 9).Draw(t, "h"), C: 3, Planes: rapid.Bool().Draw(t, "planes")}
			p.Scale, p.Bias = [3]float32{1, 2, 3}, [3]float32{-1, 0, .5}
			s.Sizes, s.Pictures = append(s.Sizes, int64(4*p.W*p.H*p.C)), append(s.Pictures, p)
			b = append(b, u64(uint64(4*p.W*p.H*p.C))...)
			binary.LittleEndian.PutUint32(b[12:], uint32(len(s.Sizes)))
		}
		b = append(append(append(b, u32(uint32(len(s.Structure)))...), s.Structure...), u32(uint32(many))...)
		for _, p := range s.Pictures {
			b = append(b, pictured(p)...)
		}
		return kind, b, s
	case fromDone:
		d := Done{Batch: number.Draw(t, "batch"), Nanos: rapid.Int64().Draw(t, "nanos"), Rows: []Row{}}
		n := rapid.IntRange(0, 3).Draw(t, "rows")
		b := append(append(u64(d.Batch), u64(uint64(d.Nanos))...), u32(uint32(n))...)
		for range n {
			r := Row{Row: row.Draw(t, "row")}
			b = append(b, u32(r.Row)...)
			if rapid.Bool().Draw(t, "bad") {
				r.Bad = data.Draw(t, "error")
				r.Odd = rapid.Bool().Draw(t, "odd")
				status := byte(bad)
				if r.Odd {
					status = odd
				}
				b = append(append(append(b, status), u32(uint32(len(r.Bad)))...), r.Bad...)
			} else {
				r.Values = []Value{}
				values := rapid.IntRange(0, 2).Draw(t, "values")
				status := byte(filled)
				if r.Ready = rapid.Bool().Draw(t, "ready"); r.Ready {
					status = ready
				}
				b = append(append(b, status), u32(uint32(values))...)
				for range values {
					v := Value{row.Draw(t, "column"), data.Draw(t, "value")}
					b = append(append(append(b, u32(v.Column)...), u32(uint32(len(v.Data)))...), v.Data...)
					r.Values = append(r.Values, v)
				}
			}
			d.Rows = append(d.Rows, r)
		}
		return kind, b, d
	case fromNeed:
		n := Need{number.Draw(t, "batch"), rapid.Int64().Draw(t, "bytes")}
		return kind, append(u64(n.Batch), u64(uint64(n.Bytes))...), n
	case fromWrote:
		w := Wrote{number.Draw(t, "batch"), rapid.Int64().Draw(t, "bytes"), rapid.Int64().Draw(t, "nanos")}
		return kind, append(append(u64(w.Batch), u64(uint64(w.Bytes))...), u64(uint64(w.Nanos))...), w
	case fromMade:
		m := Made{Wrote{number.Draw(t, "batch"), rapid.Int64().Draw(t, "bytes"), rapid.Int64().Draw(t, "nanos")}, row.Draw(t, "rows"), data.Draw(t, "told")}
		b := append(append(u64(m.Batch), u64(uint64(m.Bytes))...), u64(uint64(m.Nanos))...)
		b = append(append(b, u32(m.Rows)...), u32(uint32(len(m.Told)))...)
		return kind, append(b, m.Told...), m
	case fromEnded:
		n := number.Draw(t, "batch")
		return kind, u64(n), Ended{n}
	}
	f := data.Draw(t, "failed")
	return kind, f, Failed(f)
}

// What a worker says is read as it was written; cut anywhere, it is an error.
func TestFramesOfWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind, payload, want := answers(t)
		frame := append(append(u32(uint32(len(payload)+1)), kind), payload...)
		got, b, err := readFrame(bytes.NewReader(frame))
		if err != nil || got != kind {
			t.Fatalf("type %d, %v", got, err)
		}
		said, err := decode(kind, b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, said, cmp.Comparer(bytes.Equal)); d != "" {
			t.Fatal(d)
		}
		if kind == fromFailed {
			return
		}
		at := rapid.IntRange(0, len(payload)-1).Draw(t, "cut")
		if _, err := decode(kind, payload[:at]); err == nil {
			t.Fatalf("a frame of type %d, cut after %d of %d bytes, is read", kind, at, len(payload))
		}
		if _, err := decode(kind, append(payload, 0)); err == nil {
			t.Fatalf("a frame of type %d with a byte too many is read", kind)
		}
	})
}

func TestFramesThatAreNot(t *testing.T) {
	for name, b := range map[string][]byte{"empty": u32(0), "too long": u32(1<<30 + 1), "cut": {9, 0, 0, 0, 3, 1}} {
		if _, _, err := readFrame(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: is read", name)
		}
	}
	if _, _, err := readFrame(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, err := decode(99, nil); err == nil {
		t.Error("a frame of an unknown type is read")
	}
}

// A worker is the user's process: whatever it sends takes no more memory than it has
// sent, and never panics.
func FuzzFrames(f *testing.F) {
	f.Add(byte(fromDone), append(append(u64(1), u64(2)...), u32(1<<31)...))
	f.Add(byte(fromShape), append(append(append(u64(1), u32(2)...), u32(1)...), u64(16)...))
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		said, err := decode(kind, b)
		if d, ok := said.(Done); ok && err == nil && len(d.Rows)*9 > len(b) {
			t.Errorf("%d rows in %d bytes", len(d.Rows), len(b))
		}
	})
}
