package token

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// model is the part of a SentencePiece model (Kudo, Richardson 2018) that encoding
// needs. The file is a protocol buffer, see src/sentencepiece_model.proto there.
type model struct {
	pieces   []piece
	byText   map[string]int32 // pieces for text
	bytes    [256]int32       // byte pieces
	unknown  int32
	end      int64 // "</s>", or -1
	bpe      bool
	fallback bool    // unknown text becomes its bytes
	worst    float32 // range of the scores of normal pieces
	best     float32
	prefixes trie // the keys of byText
	made     trie // user-defined pieces

	rules   charsMap
	prefix  bool // a blank is added before the text
	squeeze bool // blanks at the ends are removed, several become one
	escape  bool // blanks become U+2581
	suffix  bool // what prefix adds comes after the text instead
}

type piece struct {
	text  string
	score float32
	kind  uint64
}

// Kinds of pieces.
const (
	kindNormal  = 1
	kindUnknown = 2
	kindControl = 3
	kindUser    = 4
	kindUnused  = 5
	kindByte    = 6
)

var errCut = errors.New("the file is truncated")

// fields calls f for every field of a message: with the value of varints and fixed
// numbers, and with the bytes of strings and messages.
func fields(b []byte, f func(number int, value uint64, data []byte) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return errCut
		}
		b = b[n:]
		var value uint64
		var data []byte
		switch key & 7 {
		case 0:
			if value, n = binary.Uvarint(b); n <= 0 {
				return errCut
			}
			b = b[n:]
		case 1:
			if len(b) < 8 {
				return errCut
			}
			value, b = binary.LittleEndian.Uint64(b), b[8:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return errCut
			}
			data, b = b[n:n+int(size)], b[n+int(size):]
		case 5:
			if len(b) < 4 {
				return errCut
			}
			value, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		default:
			return fmt.Errorf("a field of wire type %d", key&7)
		}
		if err := f(int(key>>3), value, data); err != nil {
			return err
		}
	}
	return nil
}

// parseModel reads a model.
func parseModel(b []byte) (*model, error) {
	m := &model{
		byText: map[string]int32{}, unknown: -1, end: -1, prefix: true, squeeze: true, escape: true,
		prefixes: newTrie(), made: newTrie(),
		worst: math.MaxFloat32, best: 0x1p-126, // initial values of the library (FLT_MAX, FLT_MIN)
	}
	endID, kind := int64(2), uint64(1)
	err := fields(b, func(number int, _ uint64, data []byte) error {
		switch number {
		case 1:
			return m.piece(data)
		case 2:
			return fields(data, func(number int, value uint64, _ []byte) error {
				switch number {
				case 3:
					kind = value
				case 24:
					m.suffix = value != 0
				case 35:
					m.fallback = value != 0
				case 42:
					endID = int64(int32(value))
				}
				return nil
			})
		case 3:
			return fields(data, func(number int, value uint64, data []byte) (err error) {
				switch number {
				case 2:
					m.rules, err = parseCharsMap(data)
				case 3:
					m.prefix = value != 0
				case 4:
					m.squeeze = value != 0
				case 5:
					m.escape = value != 0
				}
				return err
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case len(m.pieces) == 0:
		return nil, errors.New("it has no pieces")
	case m.unknown < 0:
		return nil, errors.New("it has no unknown piece")
	case kind != 1 && kind != 2:
		return nil, fmt.Errorf("a model of type %d: only unigram and BPE are supported", kind)
	}
	m.bpe = kind == 2
	if endID >= 0 && endID < int64(len(m.pieces)) && m.pieces[endID].kind == kindControl {
		m.end = endID
	}
	return m, nil
}

func (m *model) piece(b []byte) error {
	p := piece{kind: kindNormal}
	err := fields(b, func(number int, value uint64, data []byte) error {
		switch number {
		case 1:
			p.text = string(data)
		case 2:
			p.score = math.Float32frombits(uint32(value))
		case 3:
			p.kind = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	id := int32(len(m.pieces))
	m.pieces = append(m.pieces, p)
	switch p.kind {
	case kindUnknown:
		m.unknown = id
	case kindByte:
		var c byte
		if _, err := fmt.Sscanf(p.text, "<0x%02X>", &c); err != nil {
			return fmt.Errorf("a byte piece is named %q", p.text)
		}
		m.bytes[c] = id
	case kindNormal, kindUser, kindUnused:
		if p.text == "" {
			return fmt.Errorf("piece %d is empty", id)
		}
		m.byText[p.text] = id
		m.prefixes.add(p.text, id)
		if p.kind == kindUser {
			m.made.add(p.text, id)
		}
		if p.kind == kindNormal {
			m.worst, m.best = min(m.worst, p.score), max(m.best, p.score)
		}
	}
	return nil
}
