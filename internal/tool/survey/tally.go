package survey

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/tool/inspect"
)

// tallies are the figures of all goroutines: each goroutine takes one set, adds a sample
// to it, and returns it.
type tallies struct {
	headers bool
	room    *mem.Room
	limit   int64        // pixels of a picture; 0: the usual
	typed   format.Typed // nil: the format has no arrays

	mu   sync.Mutex
	all  []*tally
	free []*tally
}

// tally is one set of figures, by the names of fields, and the memory to compute them.
type tally struct {
	lane   *transform.Lane
	rgb    *transform.Program
	pixels []byte
	fields map[string]*figures
}

// figures are those of one field.
type figures struct {
	// sums and squares of the pixels of a channel, of at most 2^48 each.
	pixels, squares []uint64
	// sums and squares of the numbers of a channel, if they are not pixels.
	numbers, powers  []*sum
	values           int64 // numbers per channel
	notFinite        int64
	width, height    map[int64]int64 // how many have it
	length           map[int64]int64
	bytes            []int64
	counts           map[int64]int64 // of whole numbers; nil once there are too many
	tooMany, numeric bool
}

func (t *tallies) take() (*tally, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		one := t.free[n-1]
		t.free = t.free[:n-1]
		return one, nil
	}
	rgb, err := transform.Compile("rgb", nil, "")
	if err != nil {
		return nil, err
	}
	rgb.Limit(t.limit)
	one := &tally{lane: transform.NewLane(), rgb: rgb, fields: map[string]*figures{}}
	one.lane.Room = t.room
	t.all = append(t.all, one)
	return one, nil
}

func (t *tallies) put(one *tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, one)
}

func (t *tallies) close() {
	for _, one := range t.all {
		one.lane.Close()
	}
}

// each adds a field of a sample.
func (t *tallies) each(seen inspect.Seen) error {
	one, err := t.take()
	if err != nil {
		return err
	}
	defer t.put(one)
	fig := one.fields[seen.Field.Name]
	if fig == nil {
		fig = &figures{width: map[int64]int64{}, height: map[int64]int64{}, length: map[int64]int64{}, counts: map[int64]int64{}}
		one.fields[strings.Clone(seen.Field.Name)] = fig
	}
	if !seen.Field.IsInt {
		fig.bytes = append(fig.bytes, int64(len(seen.Field.Data)))
	}
	switch seen.Kind {
	case "image":
		return one.image(fig, seen, t.headers)
	case "number":
		return fig.number(seen.Field)
	case "text":
		fig.length[int64(utf8.RuneCount(seen.Field.Data))]++
	case "array":
		typ, _ := t.typed.Type(seen.Field.Name)
		fig.array(seen.Field.Data, typ)
	default:
		if seen.Field.IsInt {
			return fig.number(seen.Field)
		}
	}
	return nil
}

// image adds a picture: its size, and the sums of its pixels.
func (one *tally) image(fig *figures, seen inspect.Seen, headers bool) error {
	if !headers {
		shape, err := one.rgb.Begin(one.lane, seen.Field.Data, rng.Key(0))
		if err != nil {
			return err
		}
		n := shape.Elems()
		one.pixels, one.lane.Beside = mem.Sized(one.pixels, n), int64(n)
		one.lane.Then = func() { fig.addPixels(one.pixels, 3, 1) }
		err = one.rgb.Finish(one.lane, one.pixels)
		mem.Trim(&one.pixels)
		if err != nil {
			return err
		}
	}
	fig.width[seen.Width]++
	fig.height[seen.Height]++
	return nil
}

// addPixels adds the bytes of a picture with this many channels. With step 1 the
// channels are interleaved; otherwise they follow each other, step bytes each.
func (f *figures) addPixels(p []byte, channels, step int) {
	if f.pixels == nil {
		f.pixels, f.squares = make([]uint64, channels), make([]uint64, channels)
	}
	f.values += int64(len(p) / channels)
	if step > 1 { // planes
		for c := range channels {
			s, q := byteSums(p[c*step : (c+1)*step])
			f.pixels[c] += s
			f.squares[c] += q
		}
		return
	}
	if channels == 3 {
		var s0, s1, s2, q0, q1, q2 uint64
		for i := 0; i+2 < len(p); i += 3 {
			a, b, c := uint64(p[i]), uint64(p[i+1]), uint64(p[i+2])
			s0, s1, s2 = s0+a, s1+b, s2+c
			q0, q1, q2 = q0+a*a, q1+b*b, q2+c*c
		}
		for c, v := range [3][2]uint64{{s0, q0}, {s1, q1}, {s2, q2}} {
			f.pixels[c] += v[0]
			f.squares[c] += v[1]
		}
		return
	}
	for i, v := range p {
		c := i % channels
		f.pixels[c] += uint64(v)
		f.squares[c] += uint64(v) * uint64(v)
	}
}

func byteSums(p []byte) (s, q uint64) {
	for _, v := range p {
		s += uint64(v)
		q += uint64(v) * uint64(v)
	}
	return s, q
}

// number adds a whole number, which may be a class.
func (f *figures) number(field *format.Field) error {
	v, err := numberOf(field)
	if err == nil {
		f.class(v)
	}
	return err
}

// maxClasses is how many classes are counted: larger numbers are ids, not classes.
const maxClasses = 1 << 16

func (f *figures) class(v int64) {
	f.numeric = true
	if f.tooMany {
		return
	}
	f.counts[v]++
	if len(f.counts) > maxClasses {
		f.counts, f.tooMany = map[int64]int64{}, true
	}
}

// array adds an array. Bytes of a picture's shape are pixels.
func (f *figures) array(data []byte, typ format.Type) {
	if typ.DType == mem.Object {
		return
	}
	size := typ.DType.Size()
	if typ.Ragged {
		if row := typ.Shape.Elems() * size; row > 0 {
			f.length[int64(len(data)/row)]++
		}
	}
	whole, _ := typ.DType.Int()
	if whole && !typ.Ragged && typ.Shape.Elems() == 1 {
		f.class(int64(at(data, 0, typ.DType)))
		return
	}
	channels, step := channelsOf(typ)
	if typ.DType == mem.Uint8 && channels > 0 {
		f.addPixels(data, channels, step)
		return
	}
	if whole && channels == 0 && (typ.Ragged || typ.Shape.Elems() > 1) && typ.DType != mem.Uint8 {
		f.values += int64(len(data) / size) // tokens, ids: a mean is meaningless
		return
	}
	f.addNumbers(data, typ.DType, max(channels, 1), step)
}

// channelsOf is the number of channels of an array, 0 if it is not a picture, and
// how many elements of one are consecutive: 1 if the channels are interleaved.
func channelsOf(typ format.Type) (channels, step int) {
	s := typ.Shape
	isChannels := func(n int) bool { return n == 1 || n == 3 || n == 4 }
	switch {
	case typ.Ragged || len(s) != 3:
		return 0, 1
	case isChannels(s[2]):
		return s[2], 1
	case isChannels(s[0]):
		return s[0], s[1] * s[2]
	}
	return 0, 1
}

func (f *figures) addNumbers(data []byte, typ mem.DType, channels, step int) {
	if f.numbers == nil {
		for range channels {
			f.numbers, f.powers = append(f.numbers, new(sum)), append(f.powers, new(sum))
		}
	}
	n := len(data) / typ.Size()
	for i := range n {
		c := i % channels
		if step > 1 {
			c = i / step
		}
		x := at(data, i, typ)
		if math.IsNaN(x) || math.IsInf(x, 0) || math.IsInf(x*x, 0) {
			f.notFinite++
			continue
		}
		f.numbers[c].add(x)
		f.powers[c].add(x * x)
	}
	f.values += int64(n / channels)
}

// at is element i of an array, little-endian.
func at(data []byte, i int, typ mem.DType) float64 {
	p := data[i*typ.Size():]
	switch typ {
	case mem.Uint8, mem.Bool:
		return float64(p[0])
	case mem.Int8:
		return float64(int8(p[0]))
	case mem.Int16:
		return float64(int16(binary.LittleEndian.Uint16(p)))
	case mem.Uint16:
		return float64(binary.LittleEndian.Uint16(p))
	case mem.Int32:
		return float64(int32(binary.LittleEndian.Uint32(p)))
	case mem.Uint32:
		return float64(binary.LittleEndian.Uint32(p))
	case mem.Int64:
		return float64(int64(binary.LittleEndian.Uint64(p)))
	case mem.Uint64:
		return float64(binary.LittleEndian.Uint64(p))
	case mem.Float16:
		return float64(kernel.Float16.Of(binary.LittleEndian.Uint16(p)))
	case mem.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(p)) << 16))
	case mem.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(p))
}

// merged is the figures of all goroutines together.
func (t *tallies) merged() map[string]*figures {
	out := map[string]*figures{}
	for _, one := range t.all {
		for name, f := range one.fields {
			if out[name] == nil {
				out[name] = f
				continue
			}
			out[name].merge(f)
		}
	}
	return out
}

func (f *figures) merge(o *figures) {
	switch {
	case f.pixels == nil:
		f.pixels, f.squares = o.pixels, o.squares
	default:
		for c := range o.pixels {
			f.pixels[c] += o.pixels[c]
			f.squares[c] += o.squares[c]
		}
	}
	switch {
	case f.numbers == nil:
		f.numbers, f.powers = o.numbers, o.powers
	default:
		for c := range o.numbers {
			f.numbers[c].merge(o.numbers[c])
			f.powers[c].merge(o.powers[c])
		}
	}
	f.values, f.notFinite = f.values+o.values, f.notFinite+o.notFinite
	for _, m := range [][2]map[int64]int64{{f.width, o.width}, {f.height, o.height}, {f.length, o.length}} {
		for v, n := range m[1] {
			m[0][v] += n
		}
	}
	f.bytes = append(f.bytes, o.bytes...)
	f.numeric, f.tooMany = f.numeric || o.numeric, f.tooMany || o.tooMany
	for v, n := range o.counts {
		f.counts[v] += n
	}
	if f.tooMany = f.tooMany || len(f.counts) > maxClasses; f.tooMany {
		f.counts = map[int64]int64{}
	}
}

// sums are sums and squares of the channels as exact numbers, and their scale.
func (f *figures) sums() (s, q []*big.Float, scale float64) {
	for c := range f.pixels {
		s = append(s, exact().SetUint64(f.pixels[c]))
		q = append(q, exact().SetUint64(f.squares[c]))
	}
	if s != nil {
		return s, q, 255
	}
	for c := range f.numbers {
		s = append(s, f.numbers[c].value())
		q = append(q, f.powers[c].value())
	}
	return s, q, 1
}
