package mds

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	maxColumns = 4096
	maxShards  = 1 << 24
	// maxIndexJSON bounds index.json, of which a shard takes some 600 bytes.
	maxIndexJSON = 1 << 30
)

// fileInfo is one file in index.json.
type fileInfo struct {
	Basename string            `json:"basename"`
	Bytes    int64             `json:"bytes"`
	Hashes   map[string]string `json:"hashes"`
}

// shardInfo is one shard in index.json.
type shardInfo struct {
	Version     int       `json:"version"`
	Format      string    `json:"format"`
	Compression string    `json:"compression"`
	Samples     int64     `json:"samples"`
	Raw         *fileInfo `json:"raw_data"`
	Zip         *fileInfo `json:"zip_data"`
	columnInfo
}

// columnInfo is the columns of a shard, in index.json and in the shard itself.
type columnInfo struct {
	Names     []string `json:"column_names"`
	Encodings []string `json:"column_encodings"`
	Sizes     []*int64 `json:"column_sizes"`
}

func (a columnInfo) equal(b columnInfo) bool {
	return slices.Equal(a.Names, b.Names) && slices.Equal(a.Encodings, b.Encodings) &&
		slices.EqualFunc(a.Sizes, b.Sizes, func(p, q *int64) bool { return zero(p) == zero(q) })
}

func zero(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

// sourceReader reads an object from its beginning.
type sourceReader struct {
	ctx context.Context
	src source.Source
	obj source.Info
	at  int64
}

func (r *sourceReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.obj.Size-r.at)
	if n == 0 {
		return 0, io.EOF
	}
	if err := r.src.ReadAt(r.ctx, r.obj, p[:n], r.at); err != nil {
		return 0, format.InShard(err)
	}
	r.at += n
	return int(n), nil
}

// description reads index.json, a shard at a time.
type description struct {
	at     errs.Where
	shards []shardInfo
	cols   []column
}

func describe(ctx context.Context, src source.Source, obj source.Info) (*description, error) {
	d := &description{at: errs.Where{File: obj.Name}}
	if obj.Size > maxIndexJSON {
		return nil, errs.New(errs.Unsupported, "%s has %d bytes; at most %d are read", IndexName, obj.Size, maxIndexJSON).At(d.at)
	}
	dec := json.NewDecoder(bufio.NewReaderSize(&sourceReader{ctx: ctx, src: src, obj: obj}, 64<<10))
	version, seen := 2, false
	err := eachKey(dec, func(key string) error {
		switch key {
		case "version":
			return dec.Decode(&version)
		case "shards":
			seen = true
			return d.readShards(dec)
		}
		var skip json.RawMessage
		return dec.Decode(&skip)
	})
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return nil, known
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		at := d.at
		at.Offset = errs.Known(dec.InputOffset())
		return nil, errs.New(errs.Damaged, "cannot read %s", IndexName).At(at).Because(err).Try("fetch the file again, or write the dataset again")
	case version != 2:
		return nil, errs.New(errs.Unsupported, "%s is of version %d; version 2 can be read", IndexName, version).At(d.at)
	case !seen:
		return nil, errs.New(errs.Damaged, "%s has no list of shards", IndexName).At(d.at).
			Try("a dataset of MosaicML Streaming is meant; is this another tool's index.json?")
	case len(d.shards) == 0:
		return nil, errs.New(errs.Empty, "%s lists no shard", IndexName).At(d.at)
	}
	return d, nil
}

// eachKey calls f for every key of the object that comes next; f reads the value.
func eachKey(dec *json.Decoder, f func(key string) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return early(err, errors.New("it is not a JSON object"))
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		if err := f(fmt.Sprint(t)); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// early is err, or other where it is nil; an end where something should be is an
// error of its own.
func early(err, other error) error {
	switch {
	case err == nil:
		return other
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

func (d *description) readShards(dec *json.Decoder) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return early(err, errors.New("its shards are not a list"))
	}
	names := make(map[string]int)
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		var s shardInfo
		if err := jsontext.Unmarshal(raw, &s); err != nil {
			return err
		}
		n := len(d.shards)
		if err := d.check(&s, n); err != nil {
			return err
		}
		if before, twice := names[s.Raw.Basename]; twice {
			return d.wrong(n, "is the file of shard %d once more (%s)", before, s.Raw.Basename)
		}
		names[s.Raw.Basename] = n
		d.shards = append(d.shards, s)
	}
	_, err := dec.Token()
	return err
}

func (d *description) wrong(n int, text string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, "%s: shard %d %s", IndexName, n, fmt.Sprintf(text, a...)).At(d.at).
		Try("fetch the file again, or write the dataset again")
}

func (d *description) unsupported(n int, text string, a ...any) *errs.Error {
	return errs.New(errs.Unsupported, "%s: shard %d %s", IndexName, n, fmt.Sprintf(text, a...)).At(d.at)
}

// check holds shard n against what the format allows and against the first one.
func (d *description) check(s *shardInfo, n int) error {
	switch {
	case n >= maxShards:
		return d.unsupported(n, "is one too many")
	case s.Format != "mds":
		return d.unsupported(n, "has the format %.32q; mds can be read", s.Format).Try("write the dataset with MDSWriter")
	case s.Version != 2:
		return d.unsupported(n, "is of version %d; version 2 can be read", s.Version)
	case s.Samples < 0:
		return d.wrong(n, "has %d samples", s.Samples)
	case s.Raw == nil:
		return d.wrong(n, "has no file (raw_data)")
	case s.Raw.Bytes < 8 || s.Samples > (s.Raw.Bytes-8)/4:
		return d.wrong(n, "has %d samples in %d bytes", s.Samples, s.Raw.Bytes)
	}
	if err := d.checkPack(s, n); err != nil {
		return err
	}
	for _, f := range []*fileInfo{s.Raw, s.Zip} {
		if f != nil && !local(f.Basename) {
			return d.wrong(n, "has the name %.80q, which leads out of the folder", f.Basename)
		}
		if f != nil && f.Bytes < 0 {
			return d.wrong(n, "has a file of %d bytes", f.Bytes)
		}
	}
	if n > 0 {
		if !s.columnInfo.equal(d.shards[0].columnInfo) {
			return d.unsupported(n, "has other columns than shard 0: %.200q and %.200q", s.Names, d.shards[0].Names).
				Try("keep datasets with different columns in folders of their own, and mix them")
		}
		return nil
	}
	return d.checkColumns(s)
}

// checkPack looks at how a shard is compressed and leaves the family alone, "zstd"
// of "zstd:7", in s.
func (d *description) checkPack(s *shardInfo, n int) error {
	s.Compression, _, _ = strings.Cut(s.Compression, ":")
	switch {
	case s.Compression == "":
		return nil
	case s.Compression == "br":
		return d.unsupported(n, "is compressed with Brotli, which stoker does not read").
			Try("write the dataset with compression=\"zstd\", or open it with Streaming once and point stoker at its local copy (keep_zip=False)")
	case !slices.Contains(packs, s.Compression):
		return d.unsupported(n, "is compressed with %.32q; %s can be read", s.Compression, strings.Join(packs, ", "))
	case s.Zip == nil:
		return d.wrong(n, "is compressed, but has no compressed file (zip_data)")
	case s.Raw.Bytes > maxUnpacked:
		return d.unsupported(n, "has %d bytes when decompressed; a compressed shard is kept in memory whole, and may have at most %d", s.Raw.Bytes, int64(maxUnpacked)).
			Try("write the dataset with a smaller size_limit, or without compression")
	}
	return nil
}

// local says whether a name stays in its folder.
func local(name string) bool {
	if name == "" || strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\x00\\") || strings.Contains(name, "://") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func (d *description) checkColumns(s *shardInfo) error {
	if len(s.Names) == 0 || len(s.Names) != len(s.Encodings) || len(s.Names) != len(s.Sizes) {
		return d.wrong(0, "has %d names, %d encodings and %d sizes of columns", len(s.Names), len(s.Encodings), len(s.Sizes))
	}
	if len(s.Names) > maxColumns {
		return d.unsupported(0, "has %d columns; at most %d are read", len(s.Names), maxColumns)
	}
	seen := make(map[string]bool)
	readable := false
	for i, name := range s.Names {
		if seen[name] {
			return d.wrong(0, "has the column %.80q twice", name)
		}
		seen[name] = true
		c, wrong := newColumn(name, s.Encodings[i], s.Sizes[i])
		if wrong != "" {
			return d.wrong(0, "has a column %.80q that %.200s", name, wrong)
		}
		readable = readable || c.Kind != refused
		d.cols = append(d.cols, c)
	}
	if !readable {
		return d.unsupported(0, "has no column that can be read: %.80q is %.32q", s.Names[0], s.Encodings[0]).Try("%s", d.cols[0].Why)
	}
	return nil
}

// hashes are those of a file, sorted by name, as "sha1=da39..." lines.
func (f *fileInfo) hashes() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(f.Hashes)) {
		lines = append(lines, name+"="+f.Hashes[name])
	}
	return strings.Join(lines, "\n")
}
