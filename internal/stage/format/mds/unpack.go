package mds

import (
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// packs are the compressions that can be read.
var packs = []string{"zstd", "gz", "bz2", "snappy"}

// What zstd may look back, and so what a decoder allocates: no further than the
// beginning, and no further than its level 22 does.
const (
	minWindow = 1 << 20
	maxWindow = 128 << 20
)

// atOnce is how many shards of a dataset are unpacked at once: each takes its own
// bytes, stored and unpacked, beside those that are kept.
const atOnce = 2

// unpacker unpacks shards.
type unpacker struct {
	src  source.Source
	turn chan struct{}
}

func newUnpacker(src source.Source) unpacker {
	return unpacker{src, make(chan struct{}, atOnce)}
}

// stream is r unpacked, for what needs the beginning only. raw is the bytes that
// should come out.
func stream(pack string, r io.Reader, raw int64) (io.Reader, func(), error) {
	switch pack {
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(min(max(raw, minWindow), maxWindow))), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case "gz":
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	case "bz2":
		return bzip2.NewReader(r), func() {}, nil
	}
	// Snappy's blocks have no beginning that stands alone.
	zip, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, err
	}
	n, err := s2.DecodedLen(zip)
	if err != nil {
		return nil, nil, err
	}
	if int64(n) != raw || n > 32*len(zip)+64 { // three bytes copy 64 at most
		return nil, nil, fmt.Errorf("it says that it has %d bytes when decompressed, not %d", n, raw)
	}
	out, err := s2.Decode(nil, zip)
	return bytes.NewReader(out), func() {}, err
}

// exactly reads raw bytes from r, which must end there. What is allocated follows
// what has come: a size that was only claimed costs nothing.
func exactly(r io.Reader, raw, compressed int64) ([]byte, error) {
	buf := make([]byte, min(raw, 4*compressed+1<<20))
	at := 0
	for {
		n, err := io.ReadFull(r, buf[at:])
		at += n
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		if err != nil && int64(at) < raw {
			return nil, fmt.Errorf("it ends after %d bytes of %d", at, raw)
		}
		if int64(at) == raw {
			break
		}
		buf = append(buf, make([]byte, min(raw-int64(at), int64(at)))...)
	}
	var more [1]byte
	if n, err := io.ReadFull(r, more[:]); n > 0 {
		return nil, fmt.Errorf("it goes on after %d bytes", raw)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf, nil
}

// whole is the unpacked bytes of a compressed shard.
func (u unpacker) whole(ctx context.Context, s *stored) ([]byte, error) {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	in := &sourceReader{ctx: ctx, src: u.src, obj: s.obj}
	var known *errs.Error
	z, end, err := stream(s.pack, in, s.raw)
	if err == nil {
		var data []byte
		data, err = exactly(z, s.raw, s.obj.Size)
		end()
		if err == nil && s.known && int64(xxhash.Sum64(data)) != s.check {
			err = fmt.Errorf("its XXH64 is %016x, but %s has %016x", xxhash.Sum64(data), IndexName, uint64(s.check))
		}
		if err == nil {
			return data, nil
		}
	}
	if errors.As(err, &known) {
		return nil, known
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, notDecompressed(s.obj, s.pack, err)
}

func notDecompressed(obj source.Info, pack string, err error) error {
	return errs.New(errs.Damaged, "cannot decompress the shard (%s)", pack).At(errs.Where{Shard: obj.Name, Offset: errs.Known(0)}).
		Because(err).Try("fetch the shard again; stoker verify checks all shards against their hashes")
}
