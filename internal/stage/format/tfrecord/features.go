package tfrecord

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// The columns of features, sorted by their names. They follow from the payloads.
const (
	featureName  = "feature.name"  // strings
	featureKind  = "feature.kind"  // int32: kind; mixed: it differs
	featureLeast = "feature.least" // int64: the fewest values that a sample has that has the feature
	featureMost  = "feature.most"  // int64
	featureIn    = "feature.in"    // int64: samples that have the feature
	featureOdd   = "feature.odd"   // strings: names that are not UTF-8, quoted
)

const (
	mixed kind = 4

	maxName     = 1 << 10 // bytes of a feature's name
	maxFeatures = 4096    // of all samples; beyond that there are none
	maxOdd      = 16      // names that are told of
)

// feature is what is known of one feature.
type feature struct {
	name        string
	kind        kind
	least, most int64
	in          int64
}

// facts is what indexing learns of the features of samples.
type facts struct {
	byName  map[string]*feature
	samples int64           // that are Examples
	many    bool            // more than maxFeatures
	odd     map[string]bool // names that are not UTF-8: the first maxOdd
}

// add takes in a payload. One that is not an Example is ignored: that is detected when
// a feature of it is wanted.
func (f *facts) add(p []byte) {
	if f.many {
		return
	}
	for w := (walk{example: p}); ; {
		name, message, more, err := w.next()
		if err != nil {
			return
		}
		if !more {
			break
		}
		if values, k, err := list(message); err != nil || len(name) > maxName {
			return
		} else if _, err = count(values, k); err != nil {
			return
		}
	}
	f.samples++
	for w := (walk{example: p}); ; {
		name, message, more, _ := w.next()
		if !more {
			return
		}
		values, k, _ := list(message)
		n, _ := count(values, k)
		f.see(name, k, int64(n))
	}
}

func (f *facts) see(name []byte, k kind, n int64) {
	if !utf8.Valid(name) {
		f.noteOdd(string(name))
		return
	}
	e := f.byName[string(name)]
	if e == nil {
		if f.byName == nil {
			f.byName = make(map[string]*feature)
		}
		if len(f.byName) == maxFeatures {
			f.many = true
			return
		}
		e = &feature{name: string(name), kind: k, least: n, most: n}
		f.byName[e.name] = e
	}
	e.join(feature{kind: k, least: n, most: n, in: 1})
}

func (f *facts) noteOdd(name string) {
	if f.odd == nil {
		f.odd = make(map[string]bool)
	}
	if len(f.odd) < maxOdd {
		f.odd[name] = true
	}
}

func (e *feature) join(o feature) {
	switch {
	case o.kind == noKind || o.kind == e.kind:
	case e.kind == noKind:
		e.kind = o.kind
	default:
		e.kind = mixed
	}
	e.least, e.most, e.in = min(e.least, o.least), max(e.most, o.most), e.in+o.in
}

func (f *facts) merge(o *facts) {
	f.samples += o.samples
	f.many = f.many || o.many
	for _, name := range slices.Sorted(maps.Keys(o.odd)) {
		f.noteOdd(name)
	}
	for name, e := range o.byName {
		if have := f.byName[name]; have != nil {
			have.join(*e)
			continue
		}
		if f.byName == nil {
			f.byName = make(map[string]*feature)
		}
		f.byName[name] = e
	}
	f.many = f.many || len(f.byName) > maxFeatures
}

func (f *facts) write(b *index.Builder) {
	if f.many {
		f.byName = nil
	}
	var (
		names           index.Texts
		kinds           []int32
		least, most, in []int64
	)
	for _, name := range slices.Sorted(maps.Keys(f.byName)) {
		e := f.byName[name]
		names.AppendString(name)
		kinds = append(kinds, int32(e.kind))
		least, most, in = append(least, e.least), append(most, e.most), append(in, e.in)
		b.Meta.Fields = append(b.Meta.Fields, name)
	}
	if len(b.Meta.Fields) == 0 {
		b.Meta.Fields = []string{Data}
	}
	var odd index.Texts
	for _, name := range slices.Sorted(maps.Keys(f.odd)) {
		odd.AppendString(strconv.Quote(name))
	}
	b.Strings(featureOdd, &odd, index.Aside)
	b.Strings(featureName, &names, index.Aside)
	b.Int32s(featureKind, kinds, index.Aside)
	b.Int64s(featureLeast, least, index.Aside)
	b.Int64s(featureMost, most, index.Aside)
	b.Int64s(featureIn, in, index.Aside)
}

func features(x *index.Index) []feature {
	names, kinds := x.Strings(featureName), x.Int32s(featureKind)
	least, most, in := x.Int64s(featureLeast), x.Int64s(featureMost), x.Int64s(featureIn)
	n := names.Len()
	if len(kinds) != n || len(least) != n || len(most) != n || len(in) != n {
		return nil
	}
	out := make([]feature, n)
	for i := range out {
		out[i] = feature{string(names.At(i)), kind(kinds[i]), least[i], most[i], in[i]}
	}
	return out
}

func featuresValid(x *index.Index) bool {
	f := features(x)
	if len(f) != x.Strings(featureName).Len() {
		return false
	}
	for i, e := range f {
		if e.kind < noKind || e.kind > mixed || e.least < 0 || e.most < e.least || e.most > 1<<40 || e.in < 0 || i > 0 && f[i-1].name >= e.name {
			return false
		}
	}
	return true
}

// find returns a feature by its name, or nil if there is none.
func (d *Dataset) find(name []byte) *feature {
	i, ok := slices.BinarySearchFunc(d.fields, name, func(f feature, name []byte) int {
		return compare(f.name, name)
	})
	if !ok {
		return nil
	}
	return &d.fields[i]
}

func compare(a string, b []byte) int {
	s := view(b)
	switch {
	case a < s:
		return -1
	case a > s:
		return 1
	}
	return 0
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// fixed says whether a feature has the same number of values in every sample.
func (d *Dataset) fixed(f *feature) bool { return f.in == d.all && f.least == f.most }

// Type is format.Typed's.
//
// Alternatives that hold different things are encoded bytes: which of them a sample
// has is seen when it is read.
func (d *Dataset) Type(field string) (t format.Type, ok bool) {
	for more := true; more; {
		var alt string
		alt, field, more = d.cut(field)
		one, known := d.typeOf(alt)
		switch {
		case !known:
		case !ok:
			t, ok = one, true
		case one.DType != t.DType || one.Ragged != t.Ragged || !slices.Equal(one.Shape, t.Shape):
			return format.Type{DType: mem.Object}, true
		}
	}
	return t, ok
}

func (d *Dataset) typeOf(field string) (format.Type, bool) {
	f := d.find([]byte(field))
	switch {
	case f == nil:
		return format.Type{DType: mem.Object}, field == Data || field == Payload
	case f.kind != intKind && f.kind != floatKind:
		return format.Type{DType: mem.Object}, true
	}
	t := format.Type{DType: mem.Int64, Shape: mem.Shape{}}
	if f.kind == floatKind {
		t.DType = mem.Float32
	}
	switch {
	case !d.fixed(f):
		t.Ragged = true
	case f.most != 1:
		t.Shape = mem.Shape{int(f.most)}
	}
	return t, true
}

// Decode says which fields are better left out if no fields are asked for: the payload
// if there are features, and what not every sample has.
func (d *Dataset) Decode(field string) string {
	f := d.find([]byte(field))
	switch {
	case f == nil && len(d.fields) > 0, f != nil && d.all < d.x.Len():
		return "none"
	case f != nil && f.kind != intKind && f.kind != floatKind && (f.kind == mixed || !d.fixed(f) || f.most != 1):
		return "none"
	}
	return ""
}

// LeftOut says why Decode leaves a field out; "": it needs no word.
func (d *Dataset) LeftOut(field string) string {
	f := d.find([]byte(field))
	switch {
	case f == nil:
		return ""
	case f.kind == mixed:
		return "its values are of one kind in some samples and of another in others"
	case d.all < d.x.Len():
		return fmt.Sprintf("%d of %d samples are not a tf.train.Example", d.x.Len()-d.all, d.x.Len())
	case f.in < d.all:
		return fmt.Sprintf("%d of %d samples have it", f.in, d.all)
	}
	if f.least == f.most {
		return fmt.Sprintf("it has %d values, and a field of bytes is one", f.most)
	}
	return fmt.Sprintf("it has %d to %d values, and a field of bytes is one", f.least, f.most)
}

// ints puts the numbers of an int64 list into dst, little-endian.
func ints(values, dst []byte) {
	for len(values) > 0 {
		p, n, rest, err := run(values, intKind)
		if err != nil {
			return
		}
		for values = rest; n > 0; n-- {
			v, k := varint(p)
			binary.LittleEndian.PutUint64(dst, v)
			p, dst = p[k:], dst[8:]
		}
	}
}

// varint is the number at the beginning of p, which has one; of more than 64 bits,
// the lower ones.
func varint(p []byte) (v uint64, n int) {
	for shift := 0; ; shift += 7 {
		c := p[n]
		n++
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		if c < 0x80 {
			return v, n
		}
	}
}

// member is a name as the bytes that a Field has.
func member(name string) []byte { return unsafe.Slice(unsafe.StringData(name), len(name)) }
