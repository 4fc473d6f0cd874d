package dataset

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/stage/index"
)

// Contents describes one part as it was when it was indexed. A client that showed the
// dataset to its user compares it with what a later Open finds.
type Contents struct {
	Samples int64
	Digest  string
	// Stamp changes if a stored file is written again, even with as many bytes; "":
	// nothing is stored, or its versions are not watched. It holds on one machine only.
	Stamp string
}

// Contents are those of all parts.
func (c *Collection) Contents() []Contents {
	all := make([]Contents, len(c.Parts))
	for i, p := range c.Parts {
		all[i] = Contents{Samples: p.N, Digest: p.digest, Stamp: p.stamp()}
	}
	return all
}

func (p *Part) stamp() string {
	if p.Stored == nil {
		return ""
	}
	x, h := p.Stored.Index(), xxhash.New()
	if !x.Watched() {
		return ""
	}
	var line []byte
	for f := range x.Files() {
		size, version := x.Stamp(f)
		line = binary.LittleEndian.AppendUint64(line, uint64(size))
		line = binary.LittleEndian.AppendUint64(line, uint64(len(version)))
		line = append(line, version...)
		if len(line) >= 1<<12 {
			_, _ = h.Write(line)
			line = line[:0]
		}
	}
	_, _ = h.Write(line)
	return fmt.Sprintf("%016x", h.Sum64())
}

// Change is the difference between what is stored now and what was indexed.
type Change struct {
	File string `json:"file"` // the first that differs; "": none of them does
	How  string `json:"how"`  // what became of it: "is gone"
}

// Changed compares a part with what it was when another Open indexed it.
func (p *Part) Changed(before *Part) (c Change) {
	if p.Stored == nil || before.Stored == nil {
		return c
	}
	now, then := p.Stored.Index(), before.Stored.Index()
	there, were := numbers(now), numbers(then)
	for f := range then.Files() {
		path := string(then.AppendPath(f, nil))
		g, ok := there[path]
		if !ok {
			return Change{path, "is gone"}
		}
		size, version := then.Stamp(f)
		bytes, written := now.Stamp(g)
		switch {
		case size != bytes:
			return Change{path, fmt.Sprintf("had %d bytes and has %d", size, bytes)}
		case version != written && version != "" && written != "":
			return Change{path, "was written again"}
		}
	}
	for f := range now.Files() {
		path := string(now.AppendPath(f, nil))
		if _, ok := were[path]; !ok {
			return Change{path, "is new"}
		}
	}
	return c
}

// numbers is the number of every stored file.
func numbers(x *index.Index) map[string]int {
	all := make(map[string]int, x.Files())
	for f := range x.Files() {
		all[string(x.AppendPath(f, nil))] = f
	}
	return all
}
