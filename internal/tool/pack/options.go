// Package pack writes a dataset as shards that are read sequentially: tar as
// WebDataset reads it, TFRecord, NumPy arrays or token files.
//
// The samples of each shard are decided before the first byte is written (layout),
// as a function of the source's index and the options, and recorded in the
// destination. After that every shard is made independently: by any number of
// workers, tasks of a job array or runs that were killed, in any order, with the
// same bytes.
//
// The destination while work is in progress:
//
//	DST/shard-000007.tar      finished: fsynced before it got its name
//	DST/.pack/plan.json       what is being made: source, options, layout
//	DST/.pack/000007.json     shard 7 is finished: sizes and digests
//	DST/.pack/000007.xxh64    digests of its samples
//	DST/.pack/000007.lock     held by the process that works on shard 7
//	DST/.pack/*.tmp           not finished
//
// and at the end, when everything is complete:
//
//	DST/manifest.json         counts, sizes, digests, options
//	DST/samples.xxh64         8 bytes a sample, little-endian, in order
package pack

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// Output kinds.
const (
	OutputTar      = packing.Tar
	OutputTFRecord = packing.TFRecord
	OutputNpy      = packing.Npy
	OutputTokens   = packing.Tokens
)

// DefaultShardSize is about that of WebDataset's examples.
const DefaultShardSize = 1 << 30

// Options is everything that decides the bytes; it is stored with them.
type Options struct {
	Output    string `json:"output"`
	Name      string `json:"name"`       // of shards, before the dash and number
	ShardSize int64  `json:"shard_size"` // bytes, about
	Compress  string `json:"compress,omitempty"`
	Shuffle   bool   `json:"shuffle,omitempty"`
	Seed      uint64 `json:"seed,omitempty"` // of the shuffle and of copies
	TokenType string `json:"token_type,omitempty"`
	OnBad     string `json:"on_bad,omitempty"` // samples that cannot be read: "" (fail) or "skip"
	prepare.Options
}

// Config is one packing.
type Config struct {
	Dataset spec.Dataset
	Formats []dataset.Format // nil: dataset.Formats()
	Sources []source.Scheme  // nil: dataset.Sources
	Dst     string
	Options Options

	Jobs      int  // samples worked on at once; 0: one per core
	Task      int  // of Tasks: the number of this process
	Tasks     int  // 0: this process makes all shards and the manifest
	Overwrite bool // remove what another packing left in Dst

	Indexing func(done, total int64, what string) // may be nil
	Progress func(done, total int64, bytes int64) // samples, and what was written of them; may be nil

	through func(io.Writer) io.Writer // see shard.Target
}

// settle fills in defaults and rejects conflicting options.
func (o *Options) settle() error {
	switch {
	case o.Output == "" && o.Tokenize != "":
		o.Output = OutputTokens
	case o.Output == "":
		o.Output = OutputTar
	}
	if o.Name == "" {
		o.Name = defaultName
	}
	if o.ShardSize == 0 {
		o.ShardSize = DefaultShardSize
	}
	if o.Compress == "none" {
		o.Compress = ""
	}
	if o.OnBad == spec.Fail {
		o.OnBad = ""
	}
	var problems []string
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	if !slices.Contains([]string{OutputTar, OutputTFRecord, OutputNpy, OutputTokens}, o.Output) {
		add("unknown output %q: the choices are tar, tfrecord, npy and tokens", o.Output)
	}
	if !slices.Contains(shard.Compressions(), o.Compress) && o.Compress != "" {
		add("unknown compression %q: the choices are %s", o.Compress, strings.Join(shard.Compressions(), ", "))
	}
	if o.OnBad != "" && o.OnBad != spec.Skip {
		add("on_bad is %q: it is fail or skip", o.OnBad)
	}
	if o.Compress != "" && (o.Output == OutputNpy || o.Output == OutputTokens) {
		add("%s is read in place and cannot be compressed", o.Output)
	}
	if o.Output == OutputTFRecord && o.Compress != "" && o.Compress != "gzip" {
		add("TFRecord can only be compressed with gzip")
	}
	if strings.ContainsAny(o.Name, "/\x00") || strings.HasPrefix(o.Name, ".") {
		add("%q is not a name for shards", o.Name)
	}
	if o.ShardSize < 0 || o.Resize < 0 || o.Crop < 0 || o.Augment < 0 {
		add("a size or count is negative")
	}
	if o.Quality < 0 || o.Quality > 100 {
		add("quality %d is not between 1 and 100", o.Quality)
	}
	if o.Decode && o.Quality > 0 {
		add("decoded pictures have no quality: leave --decode or --quality out")
	}
	if o.Transform != nil && o.Augment == 0 {
		add("transforms are applied to copies: set their number with --augment")
	}
	if o.Keys != "" && o.Keys != "number" {
		add("keys must be \"number\", or left out for the source's keys, not %q", o.Keys)
	}
	if o.TokenType != "" && o.TokenType != "uint16" && o.TokenType != "uint32" {
		add("the token type must be uint16 or uint32, not %q", o.TokenType)
	}
	if o.Tokenize != "" && (o.Output != OutputTokens || o.Fields != nil || o.Resize+o.Crop+o.Quality+int(o.Augment) != 0 || o.Decode || o.JPEG != "") {
		add("tokens of text are written without other fields: use --text-field to choose the text")
	}
	if o.JPEG != "" && o.JPEG != "index" {
		add("--jpeg must be \"index\", or left out to keep JPEGs unchanged, not %q", o.JPEG)
	}
	if o.JPEG != "" && o.Decode {
		add("decoded pictures are not JPEGs: leave --jpeg or --decode out")
	}
	if o.Progressive == "refuse" {
		o.Progressive = ""
	}
	if p := o.Progressive; p != "" && (o.JPEG == "" || p != "convert" && p != "keep") {
		add("--progressive must be \"refuse\", \"convert\" or \"keep\", with --jpeg index, not %q", p)
	}
	if o.TextField != "" && o.Tokenize == "" {
		add("--text-field needs --tokenize")
	}
	if !o.Shuffle && o.Augment == 0 {
		o.Seed = 0 // has no effect
	}
	o.Options.Seed = 0
	if o.Augment > 0 {
		o.Options.Seed = o.Seed
	}
	if problems != nil {
		return errs.New(errs.Config, "%s", strings.Join(problems, "; ")).Try("see `stoker pack --help`")
	}
	return nil
}

// defaultName is the name of shards.
const defaultName = "shard"

// names are the names of the files of shard s: "shard-000007.tar"; for a field
// "image-000007.npy", or "train.image-000007.npy" if the name of shards is train.
func (p *packer) names(s int) (names []string) {
	for _, f := range p.output.Files() {
		name := p.Options.Name
		switch {
		case f.Field != "" && name == defaultName:
			name = f.Field
		case f.Field != "":
			name += "." + f.Field
		}
		name = fmt.Sprintf("%s-%06d%s", name, s, f.End)
		if p.comp != nil && !f.Plain {
			name += p.comp.End
		}
		names = append(names, name)
	}
	return names
}

// vocabulary decides the width of tokens, and gives a model's file a name that is
// the same everywhere.
func (o *Options) vocabulary(p *prepare.Program) error {
	v := p.Vocabulary()
	switch {
	case o.Output != OutputTokens:
		return nil
	case v == nil:
		o.TokenType = cmp.Or(o.TokenType, "uint16")
		return nil
	case o.TokenType == "" && v.Size > 1<<16:
		o.TokenType = "uint32"
	case o.TokenType == "":
		o.TokenType = "uint16"
	case o.TokenType == "uint16" && v.Size > 1<<16:
		return errs.New(errs.Config, "the vocabulary has %d tokens, but a uint16 has room for %d", v.Size, 1<<16).Try("leave --token-type out")
	}
	o.TextField = p.TextField()
	if strings.HasSuffix(o.Tokenize, ".model") {
		b, err := os.ReadFile(o.Tokenize)
		if err != nil {
			return errs.New(errs.NotFound, "cannot read the model").At(file(o.Tokenize)).Because(err)
		}
		sum := sha256.Sum256(b)
		o.Model, o.Tokenize = hex.EncodeToString(sum[:]), filepath.Base(o.Tokenize)
	}
	return nil
}

// output is the writer of these options, for samples like this one.
func (o *Options) output(like *shard.Sample) (shard.Output, *shard.Compressor, error) {
	comp, err := shard.NewCompressor(o.Compress)
	if err != nil {
		return nil, nil, err
	}
	switch o.Output {
	case OutputTFRecord:
		return shard.TFRecord{}, comp, nil
	case OutputNpy:
		n, err := shard.NewNpy(like)
		return n, nil, err
	case OutputTokens:
		return shard.Tokens{Wide: o.TokenType == "uint32"}, nil, nil
	}
	return shard.Tar{}, comp, nil
}
