package tfrecord

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// tf.train.Example, as far as it is read:
//
//	Example   { Features features = 1 }
//	Features  { map<string, Feature> feature = 1 }   entries: key = 1, value = 2
//	Feature   { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }
//	BytesList { repeated bytes value = 1 }
//	FloatList { repeated float value = 1 [packed] }
//	Int64List { repeated int64 value = 1 [packed] }
//
// Slices of a payload keep its capacity until they are handed out: the difference of
// two capacities is the distance between the slices.

// kind is the list that a feature has.
type kind int32

const (
	noKind kind = iota // an empty Feature
	bytesKind
	floatKind
	intKind
)

func (k kind) String() string {
	return [...]string{"nothing", "bytes_list", "float_list", "int64_list"}[k]
}

var (
	errWire  = errors.New("it is not a protocol buffer")
	errTwice = errors.New("a feature has two lists")
	errKind  = errors.New("a feature has a different kind of list than in other records")
)

// consume takes a field with its tag off p. Of one that has a length, value is
// what it holds.
func consume(p []byte) (num protowire.Number, typ protowire.Type, value, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(p)
	if n < 0 {
		return 0, 0, nil, nil, errWire
	}
	p = p[n:]
	if typ == protowire.BytesType {
		size, k := protowire.ConsumeVarint(p)
		if k < 0 || size > uint64(len(p)-k) {
			return 0, 0, nil, nil, errWire
		}
		return num, typ, p[k : k+int(size)], p[k+int(size):], nil
	}
	if n = protowire.ConsumeFieldValue(num, typ, p); n < 0 {
		return 0, 0, nil, nil, errWire
	}
	return num, typ, p[:n], p[n:], nil
}

// walk is the features of a payload, one after the other.
type walk struct{ example, features []byte }

// next returns the name of a feature and its message; more is false after the last.
func (w *walk) next() (name, message []byte, more bool, err error) {
	for len(w.features) == 0 {
		if len(w.example) == 0 {
			return nil, nil, false, nil
		}
		num, typ, value, rest, err := consume(w.example)
		if err != nil {
			return nil, nil, false, err
		}
		if w.example = rest; num == 1 && typ == protowire.BytesType {
			w.features = value
		}
	}
	num, typ, entry, rest, err := consume(w.features)
	if err != nil {
		return nil, nil, false, err
	}
	w.features = rest
	if num != 1 || typ != protowire.BytesType {
		return w.next()
	}
	for len(entry) > 0 {
		num, typ, value, rest, err := consume(entry)
		if err != nil {
			return nil, nil, false, err
		}
		switch entry = rest; {
		case num == 1 && typ == protowire.BytesType:
			name = value
		case num == 2 && typ == protowire.BytesType:
			message = value
		}
	}
	return name, message, true, nil
}

// list is the one of a feature, and its kind.
func list(message []byte) (values []byte, k kind, err error) {
	for len(message) > 0 {
		num, typ, value, rest, err := consume(message)
		if err != nil {
			return nil, noKind, err
		}
		message = rest
		if num < 1 || num > 3 || typ != protowire.BytesType {
			continue
		}
		if k != noKind {
			return nil, noKind, errTwice
		}
		values, k = value, kind(num)
	}
	return values, k, nil
}

// count is how many values a list has.
func count(values []byte, k kind) (n int, err error) {
	for len(values) > 0 {
		_, m, rest, err := run(values, k)
		if err != nil {
			return 0, err
		}
		n, values = n+m, rest
	}
	return n, nil
}

// run is the values that come next in a list, and how many they are: of bytes one,
// of numbers all that are packed together.
func run(values []byte, k kind) (p []byte, n int, rest []byte, err error) {
	num, typ, value, rest, err := consume(values)
	switch {
	case err != nil:
		return nil, 0, nil, err
	case num != 1:
		return nil, 0, rest, nil
	case k == bytesKind && typ == protowire.BytesType:
		return value, 1, rest, nil
	case k == floatKind && typ == protowire.Fixed32Type:
		return value, 1, rest, nil
	case k == floatKind && typ == protowire.BytesType && len(value)%4 == 0:
		return value, len(value) / 4, rest, nil
	case k == intKind && typ == protowire.VarintType:
		return value, 1, rest, nil
	case k == intKind && typ == protowire.BytesType:
		for _, c := range value {
			if c < 0x80 { // the last byte of a number
				n++
			}
		}
		if len(value) == 0 || value[len(value)-1] < 0x80 {
			return value, n, rest, nil
		}
	}
	return nil, 0, nil, errWire
}

// isExample says whether a payload is an Example beyond doubt: it has features
// and nothing else, all the way down.
func isExample(p []byte) bool {
	for rest := p; len(rest) > 0; {
		num, typ, features, next, err := consume(rest)
		if err != nil || num != 1 || typ != protowire.BytesType {
			return false // field 2 is what a SequenceExample has besides
		}
		for rest = next; len(features) > 0; {
			num, typ, _, next, err := consume(features)
			if err != nil || num != 1 || typ != protowire.BytesType {
				return false
			}
			features = next
		}
	}
	some := false
	for w := (walk{example: p}); ; some = true {
		name, message, more, err := w.next()
		if err != nil || !more {
			return err == nil && some
		}
		values, k, err := list(message)
		if err != nil || len(name) > maxName {
			return false
		}
		if _, err := count(values, k); err != nil {
			return false
		}
	}
}
