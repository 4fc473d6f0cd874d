package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// DefaultQuality is the quality of JPEGs that are encoded again.
const DefaultQuality = 90

// subsampling of JPEGs that are written: the default of cameras and Pillow.
const subsampling = "4:2:0"

// usualCopy is the augmentation of training with ImageNet.
func usualCopy() []transform.Op {
	return []transform.Op{
		{Name: "RandomResizedCrop", Args: map[string]json.RawMessage{"size": json.RawMessage("[224, 224]")}},
		{Name: "RandomHorizontalFlip"},
	}
}

// compilePictures makes the program of pictures, if there is anything to do.
func (p *Program) compilePictures() error {
	o := &p.opt
	if o.Resize == 0 && o.Crop == 0 && o.Quality == 0 && !o.Decode && o.Augment == 0 {
		return nil
	}
	var ops []transform.Op
	if o.Resize > 0 {
		ops = append(ops, transform.Op{Name: "Resize", Args: map[string]json.RawMessage{"size": json.RawMessage(fmt.Sprint(o.Resize))}})
	}
	if o.Crop > 0 {
		ops = append(ops, transform.Op{Name: "CenterCrop", Args: map[string]json.RawMessage{"size": json.RawMessage(fmt.Sprint(o.Crop))}})
	}
	if o.Augment > 0 {
		if o.Transform == nil {
			o.Transform = usualCopy()
		}
		if slices.ContainsFunc(o.Transform, func(op transform.Op) bool { return op.Name == "Views" }) {
			return errs.New(errs.Config, "the transforms make several views of a picture, and a copy has one").
				Try("give one view, and --augment n for n copies of each picture")
		}
		ops = append(ops, o.Transform...)
	}
	program, err := transform.Compile("rgb", ops, "")
	if err != nil {
		return err
	}
	if program.DType() != mem.Uint8 && !o.Decode {
		return errs.New(errs.Config, "the transforms give %s, which a JPEG cannot store", program.DType()).
			Try("leave ToTensor and Normalize to training, or keep arrays with --decode")
	}
	p.picture = program
	p.plain, err = transform.Compile("rgb", nil, "")
	return err
}

// Pictures reports whether pictures are processed.
func (p *Program) Pictures() bool { return p.picture != nil }

// pictured is a field after the program of pictures.
func (p *Program) pictured(l *Lane, s *format.Sample, f shard.Field, n int64) (shard.Field, error) {
	if p.smallEnough(f.Data) {
		return f, p.readable(l, s, f, n)
	}
	shape, err := p.picture.Begin(l.picture, f.Data, rng.Sample(p.opt.Seed, n, s.ID))
	if err != nil {
		return f, err
	}
	dims := mem.Shape{shape[0], shape[1], shape[2]}
	pixels := l.room(dims.Elems() * p.picture.DType().Size())
	if err := p.picture.Finish(l.picture, pixels); err != nil {
		return f, err
	}
	if p.opt.Decode {
		return shard.Field{Name: f.Name, Data: pixels, DType: p.picture.DType(), Shape: dims}, nil
	}
	quality := p.opt.Quality
	if quality == 0 {
		quality = DefaultQuality
	}
	jpeg, err := kernel.EncodeJPEG(kernel.Pixels{Pix: pixels, W: dims[1], H: dims[0], C: dims[2]}, quality, subsampling, 0)
	if err != nil {
		return f, errs.New(errs.Unsupported, "cannot write the picture as a JPEG").Because(err)
	}
	if turn := orientation(f.Data); turn > 1 {
		jpeg = turned(jpeg, turn)
	}
	f.Data = jpeg
	if f.Ext != "jpg" && f.Ext != "jpeg" {
		f = renamed(f)
	}
	return f, nil
}

// indexed is a JPEG with restart markers.
func (p *Program) indexed(l *Lane, f shard.Field) (shard.Field, error) {
	at := len(l.jpeg)
	out, done, err := l.picture.Kernel.IndexJPEG(l.jpeg, f.Data, kernel.IndexOptions{Progressive: p.opt.Progressive == "convert"})
	if err != nil {
		return p.unindexed(f, err)
	}
	l.jpeg = out
	if f.Data = out[at:len(out):len(out)]; done.Converted {
		l.Converted++
	}
	return f, nil
}

// unindexed decides what happens to a JPEG that cannot be rewritten.
func (p *Program) unindexed(f shard.Field, err error) (shard.Field, error) {
	var unsupported kernel.UnsupportedError
	if errors.As(err, &unsupported) {
		h, bad := kernel.ReadHeader(f.Data)
		if bad == nil && (h.Progressive || h.Arithmetic) && p.opt.Progressive == "keep" {
			return f, nil
		}
		e := errs.New(errs.Unsupported, "cannot rewrite the picture").Because(err)
		if bad == nil && h.Arithmetic {
			return f, e.Try("pack it as it is with --progressive keep, or without --jpeg index")
		}
		if bad == nil && h.Progressive {
			return f, e.Try("convert it with --progressive convert, or pack it as it is with --progressive keep")
		}
		if errors.As(bad, &unsupported) {
			return f, e.Try("stoker does not decode it: leave it out, or save it again")
		}
		return f, e.Try("pack without --jpeg index")
	}
	return f, errs.New(errs.Damaged, "cannot rewrite the picture").Because(err).Try("restore or remove it")
}

// renamed is a field that has become a JPEG: if its name is its old extension, it
// gets the new one.
func renamed(f shard.Field) shard.Field {
	if n := len(f.Name) - len(f.Ext); n >= 0 && f.Ext != "" && f.Name[n:] == f.Ext && (n == 0 || f.Name[n-1] == '.') {
		f.Name = f.Name[:n] + "jpg"
	}
	f.Ext = "jpg"
	return f
}

// readable says what is wrong with a picture that stays as it is. Without it, what
// no loader can read would be packed, and found in training.
func (p *Program) readable(l *Lane, s *format.Sample, f shard.Field, n int64) error {
	shape, err := p.plain.Begin(l.picture, f.Data, rng.Sample(p.opt.Seed, n, s.ID))
	if err != nil {
		return err
	}
	return p.plain.Finish(l.picture, l.room(mem.Shape{shape[0], shape[1], shape[2]}.Elems()))
}

// smallEnough reports whether a picture that is only to be made smaller is small
// enough: it stays unchanged, because encoding it again would cost quality and gain
// nothing.
func (p *Program) smallEnough(b []byte) bool {
	o := &p.opt
	if o.Resize == 0 || o.Crop > 0 || o.Decode || o.Augment > 0 {
		return false
	}
	h, err := decode.ReadHeader(b)
	return err == nil && min(h.W, h.H) <= o.Resize // Begin reports errors
}

// room returns n bytes that belong to the lane until its next run.
func (l *Lane) room(n int) []byte {
	if cap(l.arena)-len(l.arena) < n { // earlier slices stay valid
		l.arena = make([]byte, 0, max(n, 1<<16))
	}
	at := len(l.arena)
	l.arena = l.arena[:at+n]
	return l.arena[at : at+n : at+n]
}
