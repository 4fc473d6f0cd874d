package lines

import (
	"bytes"
	"context"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns beside those that every index has. Where a sample begins follows
// from the sizes before it; every stride-th is written down, so that an index has
// about 8 bytes a line.
const (
	fileFirst  = "file.first"  // int64, of files and one more: first sample
	sampleSize = "sample.size" // int32: bytes
	sampleGap  = "sample.gap"  // int32: bytes between the sample before in its file, or the beginning, and this
	sampleMark = "sample.mark" // int64, of every stride-th sample: where it begins in its file
	stride     = 256
)

// bom is the mark that some programs put before UTF-8; it is not part of the text.
const bom = "\ufeff"

// readLen is what is read at once for an index.
const readLen = 1 << 20

// builder collects the columns.
type builder struct {
	size, gap []int32
	mark      []int64
}

// add takes in a sample; last is where the sample before it in the same file ended.
func (b *builder) add(obj source.Info, last, off, size int64) error {
	if size > math.MaxInt32 || off-last > math.MaxInt32 {
		return errs.New(errs.Unsupported, "a line of %d bytes; they end at 2 GiB", max(size, off-last)).
			At(errs.Where{File: obj.Name, Offset: errs.Known(off)}).Try("check that this is text, with one object a line")
	}
	if len(b.size)%stride == 0 {
		b.mark = append(b.mark, off)
	}
	b.size, b.gap = append(b.size, int32(size)), append(b.gap, int32(off-last))
	return nil
}

func build(ctx context.Context, src source.Source, paths []string, x *index.Builder, progress index.Progress) error {
	objs, err := format.Stat(ctx, src, paths, "text file")
	if err != nil {
		return err
	}
	total, done := int64(0), int64(0)
	for _, o := range objs {
		total += o.Size
	}
	var b builder
	var first []int64
	for _, obj := range objs {
		first = append(first, int64(len(b.size)))
		if !isJSONL(obj.Name) {
			if err := b.add(obj, 0, 0, obj.Size); err != nil {
				return err
			}
			done += obj.Size
			continue
		}
		err := format.Settled(ctx, src, obj, func() error {
			return b.lines(ctx, src, obj, func(n int64) {
				if done += n; progress != nil {
					progress(done, total, "bytes")
				}
			})
		})
		if err != nil {
			return err
		}
	}
	if len(b.size) == 0 {
		return errs.New(errs.Empty, "there is no line of text").At(errs.Where{File: paths[0]})
	}
	format.Describe(x, objs)
	x.Meta.Samples, x.Meta.Fields = int64(len(b.size)), []string{Text}
	if isJSONL(paths[0]) {
		x.Meta.Fields = []string{JSON}
	}
	x.Int64s(fileFirst, append(first, int64(len(b.size))), index.Identity)
	x.Int32s(sampleSize, b.size, index.Identity)
	x.Int32s(sampleGap, b.gap, index.Aside)
	x.Int64s(sampleMark, b.mark, index.Aside)
	return nil
}

// lines takes in the lines of one file.
func (b *builder) lines(ctx context.Context, src source.Source, obj source.Info, progress func(n int64)) error {
	buf := make([]byte, min(readLen, obj.Size))
	last, begin := int64(0), int64(0) // end of the line before; beginning of this one
	blank, carriage := true, false    // so far, of this line
	end := func(at int64) error {
		if !blank {
			size := at - begin
			if carriage {
				size--
			}
			if err := b.add(obj, last, begin, size); err != nil {
				return err
			}
			last = begin + size
		}
		begin, blank, carriage = at+1, true, false
		return nil
	}
	for off := int64(0); off < obj.Size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), obj.Size-off)]
		if err := src.ReadAt(ctx, obj, buf, off); err != nil {
			return format.InShard(err)
		}
		rest := buf
		if off == 0 && bytes.HasPrefix(buf, []byte(bom)) {
			rest, begin = buf[len(bom):], int64(len(bom))
		}
		for len(rest) > 0 {
			n := bytes.IndexByte(rest, '\n')
			line := rest
			if n >= 0 {
				line = rest[:n]
			}
			if len(line) > 0 {
				blank = blank && len(bytes.TrimSpace(line)) == 0
				carriage = line[len(line)-1] == '\r'
			}
			if n < 0 {
				break
			}
			rest = rest[n+1:]
			if err := end(off + int64(len(buf)-len(rest)) - 1); err != nil {
				return err
			}
		}
		progress(int64(len(buf)))
	}
	if begin < obj.Size {
		return end(obj.Size)
	}
	return nil
}

// valid reports whether the columns fit together, and every sample is within its file.
func valid(x *index.Index) bool {
	first, size, gap, mark := x.Int64s(fileFirst), x.Int32s(sampleSize), x.Int32s(sampleGap), x.Int64s(sampleMark)
	n := x.Len()
	if n == 0 || int64(len(size)) != n || int64(len(gap)) != n || int64(len(mark)) != (n+stride-1)/stride ||
		len(first) != x.Files()+1 || first[0] != 0 || first[len(first)-1] != n {
		return false
	}
	for f := range x.Files() {
		bytes, _ := x.Stamp(f)
		if first[f] > first[f+1] || first[f+1] > n {
			return false
		}
		at := int64(0)
		for id := first[f]; id < first[f+1]; id++ {
			if size[id] < 0 || gap[id] < 0 {
				return false
			}
			at += int64(gap[id])
			if id%stride == 0 && mark[id/stride] != at {
				return false
			}
			if at += int64(size[id]); at > bytes {
				return false
			}
		}
	}
	return true
}
