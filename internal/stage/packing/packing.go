// Package packing is the manifest of a dataset that `stoker pack` has written:
// DST/manifest.json, which is written once everything else is complete.
//
//	{
//	 "stoker_pack": 2,              version of the packing: always the first key
//	 "source": {...},               the dataset that was packed
//	 "options": {...},              all that decides the bytes
//	 "kernel": "go",                if pictures were made without the C kernel
//	 "samples": 60, ...             the layout
//	 "bytes": 123456,               of all files of shards
//	 "shards": [{"files": [{"name", "bytes", "sha256"}], "first", "samples"}],
//	 "sample_digests": {...}        the file with the XXH64 of every sample
//	}
//
// The package tool/pack writes it, with all of its options; a loader and `stoker
// verify` read the part that they need. The types are here, for all three. A
// manifest is stored with data: a field may be added, but none may change.
package packing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// The outputs: what shards are written as.
const (
	Tar      = "tar"
	TFRecord = "tfrecord"
	Npy      = "npy"
	Tokens   = "tokens"
)

// The files of a packing beside its shards.
const (
	ManifestName = "manifest.json"
	DigestsName  = "samples.xxh64"
	WorkDir      = ".pack" // of a packing that is not finished
	PlanName     = "plan.json"
)

// Manifest is a finished packing. O is the part of the options that its reader
// needs: the writer has all of them, see Options for readers. Nothing in a manifest
// depends on when, where or by how many processes the dataset was packed.
type Manifest[O any] struct {
	Identity[O]
	Layout
	Bytes   int64   `json:"bytes"` // of all files of shards
	Shards  []Shard `json:"shards"`
	Digests Digests `json:"sample_digests"`
}

// Identity is what makes two packings the same.
type Identity[O any] struct {
	Version int    `json:"stoker_pack"` // of the format of shards and of the files beside them
	Source  Source `json:"source"`
	Options O      `json:"options"`
	// Kernel is "go" if pictures were made without the C kernel, or without
	// libjpeg-turbo in it: progressive and CMYK JPEGs then differ slightly, and so
	// do pictures that were encoded again.
	Kernel string `json:"kernel,omitempty"`
}

// Source is the dataset that was packed.
type Source struct {
	Format  string `json:"format"`
	Digest  string `json:"digest"`
	Samples int64  `json:"samples"`
}

// Layout is what the samples of a packing have in common.
type Layout struct {
	Texts   []string `json:"text_fields,omitempty"` // see prepare.Program.Look
	Words   []string `json:"word_fields,omitempty"` // see prepare.Program.Words
	Classes []string `json:"classes,omitempty"`     // names, by number
	Samples int64    `json:"samples"`               // samples written
	// LeftOut are fields of the source that no sample has here, or not all of them.
	LeftOut []format.Left `json:"left_out,omitempty"`
}

// Shard is one finished shard: a file, or one file for each field.
type Shard struct {
	Files   []File `json:"files"`
	First   int64  `json:"first"`   // place of its first sample
	Samples int64  `json:"samples"` // in this shard
	// Converted is the number of progressive JPEGs that were made sequential.
	Converted int64 `json:"converted,omitempty"`
	// Bad are samples that could not be read and are left out, in order.
	Bad []Bad `json:"bad,omitempty"`
}

// Bad is one sample of the source that could not be read.
type Bad struct {
	Sample int64         `json:"sample"`         // of the source
	File   jsontext.Name `json:"file,omitempty"` // or shard, below the source's root
	Error  string        `json:"error"`
}

// File is one finished file.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Digests is the file with the digest of every sample: XXH64 of the sample's bytes
// in the files of its shard, one file after the other, before compression.
type Digests struct {
	Algorithm string `json:"algorithm"`
	File
}

// Options are those that decide whether and how the samples of a packing are those
// of its source. A reader that knows only these can read manifests of later
// versions.
type Options struct {
	Output   string `json:"output"`
	Shuffle  bool   `json:"shuffle"`
	Augment  int64  `json:"augment"`
	Tokenize string `json:"tokenize"`
	Resize   int    `json:"resize"`
	Crop     int    `json:"crop"`
	Quality  int    `json:"quality"`
}

// Bad are the samples that are left out because they could not be read.
func (m *Manifest[O]) Bad() (all []Bad) {
	for _, s := range m.Shards {
		all = append(all, s.Bad...)
	}
	return all
}

// Converted is the number of progressive JPEGs that were made sequential.
func (m *Manifest[O]) Converted() (n int64) {
	for _, s := range m.Shards {
		n += s.Converted
	}
	return n
}

// Read reads a manifest and ignores everything after the first JSON value. It
// returns nil if the file is an object without a version, which another tool wrote.
func Read[O any](r io.Reader) (*Manifest[O], error) {
	var first json.RawMessage
	if err := json.NewDecoder(r).Decode(&first); err != nil {
		return nil, err
	}
	m := &Manifest[O]{}
	if err := jsontext.Unmarshal(first, m); err != nil {
		return nil, err
	}
	if m.Version == 0 {
		return nil, nil
	}
	return m, nil
}

// Ours reports whether a file that begins with head is the manifest of a packing,
// by its first key. A manifest.json of another tool lacks it.
func Ours(head []byte) bool { return bytes.Contains(head, []byte(`"stoker_pack"`)) }

// KeepsOrder reports whether sample i of the packing is sample i of its source, as
// far as the options tell that every reader knows.
func KeepsOrder(m *Manifest[Options]) bool { return m.Source.Digest != "" && Unlike(m) == "" }

// Unlike says why sample i of the packing is not sample i of its source; "" if it
// is.
func Unlike(m *Manifest[Options]) string {
	o := m.Options
	switch {
	case o.Output == Tokens || o.Tokenize != "":
		return "it was packed as tokens"
	case o.Augment > 1:
		return fmt.Sprintf("it was packed with --augment %d, and contains every sample %d times", o.Augment, o.Augment)
	case o.Shuffle:
		return "it was packed with --shuffle, and has the samples in another order"
	case m.Samples != m.Source.Samples:
		return fmt.Sprintf("only %d of %d samples were packed", m.Samples, m.Source.Samples)
	}
	return ""
}
