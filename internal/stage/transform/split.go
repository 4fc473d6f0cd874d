package transform

import (
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Split cuts the program of a picture in two: before, what comes out the same in
// every epoch, which can be kept; and after, the rest, which takes what before
// gave, as a portable pixmap (see Header). Together they give the bytes of the
// whole. ok is false for programs of other kinds.
//
// before ends in front of the first random choice, of the first step that makes
// floats, and of the first that changes the number of channels. With decode alone
// it is decoding only.
func (p *Program) Split(decodeAlone bool) (before, after *Program, ok bool) {
	if p.kind != "image" || p.stored != (size{}) {
		return nil, nil, false
	}
	n := 0
	for !decodeAlone && n < len(p.ops) && settled(p.ops[n]) {
		n++
	}
	before = &Program{codec: p.codec, kind: p.kind, dtype: mem.Uint8, ops: p.ops[:n:n], at: known{c: p.channels(), tone: plain()}, shown: "hwc", maxPixels: p.maxPixels}
	before.digest = before.fingerprint()
	rest := *p
	rest.ops = p.ops[n:]
	return before, &rest, true
}

// Steps is the number of operations of the program.
func (p *Program) Steps() int { return len(p.ops) }

// settled says whether an operation gives the same bytes every time, of the same
// channels.
func settled(op operation) bool {
	switch op.(type) {
	case *resize, *centerCrop, *pad, identity, lay:
		return true
	}
	return false
}

// CompilePixels makes the program of a field whose samples are pictures that were
// decoded before: uint8, HWC, all of one shape.
func CompilePixels(stored mem.Shape, ops []Op, layout string) (*Program, error) {
	codec := "rgb"
	if stored[2] == 1 {
		codec = "gray"
	}
	p, err := Compile(codec, ops, layout)
	if err != nil {
		return nil, err
	}
	p.stored = size{stored[1], stored[0]}
	if !p.at.sized() && len(p.ops) == 0 {
		p.at.size = p.stored
	}
	p.digest = p.fingerprint()
	return p, nil
}
