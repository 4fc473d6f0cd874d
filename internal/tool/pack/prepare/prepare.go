// Package prepare turns a sample of the source into a sample of a shard: fields are
// chosen and named by their contents, and, if asked for, pictures are made smaller,
// decoded, augmented or rewritten, and text becomes tokens. The result is a
// function of the sample, the options and the number of the copy, and of nothing
// else.
package prepare

import (
	"bytes"
	"encoding/binary"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/suffix"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
	"github.com/stoker-data/stoker/internal/tool/pack/token"
)

// Options says what to do; the zero value changes nothing.
type Options struct {
	Fields []string `json:"fields,omitempty"` // to keep, by their names in the source; nil: all
	Keys   string   `json:"keys,omitempty"`   // "" (the source's) or "number"

	Resize  int    `json:"resize,omitempty"`  // shortest side of pictures, pixels
	Crop    int    `json:"crop,omitempty"`    // side of the middle square that is kept, pixels
	Quality int    `json:"quality,omitempty"` // of JPEGs that are written
	Decode  bool   `json:"decode,omitempty"`  // pictures become uint8 arrays, HWC
	JPEG    string `json:"jpeg,omitempty"`    // "index": JPEGs get restart markers, see kernel.IndexJPEG
	// Progressive is what "index" does with progressive JPEGs: "" (refuse them),
	// "convert" or "keep".
	Progressive string         `json:"progressive,omitempty"`
	Augment     int64          `json:"augment,omitempty"`   // varied copies of every sample
	Transform   []transform.Op `json:"transform,omitempty"` // of the copies
	Seed        uint64         `json:"-"`                   // of the copies

	Tokenize  string `json:"tokenize,omitempty"`   // a vocabulary, or a model's file, to convert text to tokens
	TextField string `json:"text_field,omitempty"` // the field that becomes tokens
	Model     string `json:"model,omitempty"`      // SHA-256 of a model's file; filled in
}

// Program is compiled Options over one dataset. Any number of lanes may run it.
type Program struct {
	opt     Options
	names   format.Names              // what names in the source mean
	typed   format.Typed              // nil: all fields are encoded
	decodes func(field string) string // how the format decodes a field; may be nil
	texts   map[string]bool
	words   map[string]bool    // fields that are named like numbers, but are not
	picture *transform.Program // nil: pictures stay unchanged
	plain   *transform.Program // reads a picture and changes nothing; nil beside picture
	tokens  *token.Tokenizer   // nil: text stays unchanged
	numbers bool               // the output needs whole numbers as numbers, not as text
	named   bool               // samples have the field format.Key
	room    *mem.Room          // for large pictures, shared by all lanes
}

// Limit sets the number of pixels that a picture may have; 0 is kernel.MaxPixels.
// It is called before the program is used.
func (p *Program) Limit(maxPixels int64) {
	if p.picture != nil {
		p.picture.Limit(maxPixels)
		p.plain.Limit(maxPixels)
	}
}

// New compiles options for a dataset whose format describes its names so. numbers means
// that whole numbers stored as text (cls and the like) become numbers.
func New(ds format.Stored, names format.Names, opt Options, numbers bool) (*Program, error) {
	p := &Program{opt: opt, names: names, numbers: numbers, texts: map[string]bool{}, words: map[string]bool{}}
	p.room = mem.NewRoom(mem.Available() / 4)
	p.typed, _ = ds.(format.Typed)
	if d, ok := ds.(interface{ Decode(field string) string }); ok {
		p.decodes = d.Decode
	}
	p.named = names.Key == format.Key || slices.Contains(ds.Index().Meta().Fields, format.Key)
	if opt.Tokenize != "" {
		if err := p.openTokens(ds.Index().Meta().Fields); err != nil {
			return nil, err
		}
	}
	if p.opt.Fields != nil {
		if c, ok := ds.(interface{ Check(fields []string) error }); ok {
			if err := c.Check(p.opt.Fields); err != nil {
				return nil, err
			}
		}
	}
	return p, p.compilePictures()
}

// Wants are the fields to fetch and parse; nil: all.
func (p *Program) Wants() []string {
	if p.opt.Fields == nil {
		return nil
	}
	if p.tokens != nil || !p.named {
		return p.opt.Fields // needs no names, or there are none
	}
	return append(slices.Clone(p.opt.Fields), format.Key)
}

// Texts are the names of the encoded fields with text, as far as Look has seen;
// sorted.
func (p *Program) Texts() (names []string) {
	for name, text := range p.texts {
		if text {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Words are the names of the fields that are named like whole numbers, such as cls,
// but are something else, as far as Look has seen; sorted.
func (p *Program) Words() []string { return slices.Sorted(maps.Keys(p.words)) }

// SetSeen sets what Look found earlier: Texts and Words.
func (p *Program) SetSeen(texts, words []string) {
	p.texts, p.words = map[string]bool{}, map[string]bool{}
	for _, name := range texts {
		p.texts[name] = true
	}
	for _, name := range words {
		p.words[name] = true
	}
}

// Look learns from one sample which encoded fields are text: those that are valid
// UTF-8 without a zero byte in every sample looked at. A field has the same
// extension in all samples, so this is decided before the first one is packed.
func (p *Program) Look(s *format.Sample) {
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.IsInt || strings.HasPrefix(f.Name, "__") {
			continue
		}
		text := utf8.Valid(f.Data) && bytes.IndexByte(f.Data, 0) < 0
		if before, seen := p.texts[f.Name]; seen {
			text = text && before
		}
		p.texts[strings.Clone(f.Name)] = text
		if _, whole := whole(f.Data); p.numbers && suffix.WritesNumber(p.ext(f, nil)) && !whole {
			p.words[strings.Clone(f.Name)] = true
		}
	}
}

// Lane is the memory of one goroutine.
type Lane struct {
	picture *transform.Lane
	arena   []byte
	tokens  []uint32
	jpeg    []byte
	// Converted is the number of progressive pictures in the last sample.
	Converted int64
	out       shard.Sample
}

// NewLane returns a lane. Close it.
func NewLane() *Lane { return &Lane{picture: transform.NewLane()} }

// Close frees the lane's memory.
func (l *Lane) Close() { l.picture.Close() }

// Run makes copy number n of a sample. The result is valid until the lane's next
// run, and as long as s is.
func (p *Program) Run(l *Lane, s *format.Sample, n int64) (*shard.Sample, error) {
	if cap(l.arena) > mem.KeepBytes {
		l.arena = nil // of a large picture
	}
	l.arena, l.jpeg, l.Converted = l.arena[:0], l.jpeg[:0], 0
	l.picture.Room = p.room
	l.out.Fields = l.out.Fields[:0]
	name := p.name(s)
	l.out.Key = p.key(l.out.Key[:0], s, name, n)
	for i := range s.Fields {
		f := &s.Fields[i]
		if strings.HasPrefix(f.Name, "__") || p.beside(f.Name, s) {
			continue
		}
		if p.tokens != nil {
			field, err := p.tokenized(l, f)
			if err != nil {
				return nil, at(err, f.Name)
			}
			l.out.Fields = append(l.out.Fields, field)
			break
		}
		field, err := p.field(l, s, f, name, n)
		if err != nil {
			return nil, at(err, f.Name)
		}
		l.out.Fields = append(l.out.Fields, field)
	}
	return &l.out, nil
}

func at(err error, field string) error {
	e := *errs.From(err)
	if e.Where.Field == "" {
		e.Where.Field = strings.Clone(field)
	}
	return &e
}

// name is the sample's own name, or nil.
func (p *Program) name(s *format.Sample) []byte {
	for i := range s.Fields {
		if f := &s.Fields[i]; f.Name == format.Key || p.keyed(f.Name) && !f.IsInt {
			return f.Data
		}
	}
	return nil
}

// keyed reports whether a field is one that other writers use for the sample's name.
func (p *Program) keyed(field string) bool { return p.names.Key != "" && field == p.names.Key }

// beside reports whether a field does not belong to the contents of a sample: the record
// as a whole, beside its parts, and the name, which becomes that of the new sample.
func (p *Program) beside(field string, s *format.Sample) bool {
	return p.opt.Fields == nil && (p.keyed(field) || p.names.Record != "" && field == p.names.Record && len(s.Fields) > 1)
}

// field is one field of the result.
func (p *Program) field(l *Lane, s *format.Sample, f *format.Field, name []byte, n int64) (shard.Field, error) {
	if f.IsInt {
		return l.number(f.Name, f.Int), nil
	}
	out := shard.Field{Name: f.Name, Data: f.Data, Unnamed: p.names.Nameless != "" && f.Name == p.names.Nameless}
	if p.typed != nil {
		if t, ok := p.typed.Type(f.Name); ok && t.DType != mem.Object {
			out.DType, out.Shape = t.DType, t.Shape
			if t.Ragged {
				row := max(1, t.DType.Size()*t.Shape.Elems())
				out.Shape = append(mem.Shape{len(f.Data) / row}, t.Shape...)
			}
			return out, nil
		}
	}
	out.Ext = p.ext(f, name)
	if len(f.Data) == 0 && slices.Contains(pictures(), out.Ext) {
		return out, errs.New(errs.Damaged, "the picture is empty: it has 0 bytes").Try("fetch or remove it; `stoker verify` finds what else cannot be read")
	}
	if p.numbers && suffix.WritesNumber(out.Ext) && !p.words[f.Name] {
		v, ok := whole(f.Data)
		if !ok { // a field has one kind in all samples
			return out, errs.New(errs.Damaged, "field %q is not a whole number here, but is one in the samples that were read first", f.Name).
				Try("repair it, leave the field out with --fields, or pack as tar, which keeps it unchanged")
		}
		return l.number(f.Name, v), nil
	}
	if !p.shows(&out) && (p.texts[f.Name] || decode.Sniff(f.Data) == decode.KindUnknown) {
		return out, nil
	}
	if p.picture != nil {
		var err error
		if out, err = p.pictured(l, s, out, n); err != nil {
			return out, err
		}
	}
	if p.opt.JPEG != "" && decode.Sniff(out.Data) == decode.KindJPEG {
		return p.indexed(l, out)
	}
	return out, nil
}

// shows says that a field has to be a picture that can be read, whatever its first
// bytes say: pictures are worked on, and its name or its format call it one.
func (p *Program) shows(f *shard.Field) bool {
	if p.picture == nil {
		return false
	}
	return slices.Contains(pictures(), f.Ext) || p.decodes != nil && p.decodes(f.Name) == "rgb"
}

// number is a whole number as a field.
func (l *Lane) number(name string, v int64) shard.Field {
	p := l.room(8)
	binary.LittleEndian.PutUint64(p, uint64(v))
	return shard.Field{Name: name, Data: p, DType: mem.Int64, Shape: mem.Shape{}}
}

// whole is a whole number that is stored as text.
func whole(data []byte) (v int64, ok bool) {
	v, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	return v, err == nil
}

// ext is the extension of an encoded field: from its own name, from the file's
// name, or from its first bytes.
func (p *Program) ext(f *format.Field, name []byte) string {
	base := strings.ToLower(f.Name[strings.LastIndexByte(f.Name, '.')+1:])
	if p.names.Members || slices.Contains(known(), base) {
		return base
	}
	if p.texts[f.Name] && f.Name != "image" {
		if f.Name == "json" || len(f.Data) > 0 && f.Data[0] == '{' && jsontext.Valid(f.Data) == nil {
			return "json"
		}
		return "txt"
	}
	if f.Name == "image" {
		if own := strings.ToLower(strings.TrimPrefix(path.Ext(string(name)), ".")); own != "" && slices.Contains(known(), own) {
			return own
		}
	}
	switch decode.Sniff(f.Data) {
	case decode.KindJPEG:
		return "jpg"
	case decode.KindPNG:
		return "png"
	case decode.KindWebP:
		return "webp"
	case decode.KindGIF:
		return "gif"
	case decode.KindBMP:
		return "bmp"
	case decode.KindTIFF:
		return "tif"
	case decode.KindPNM:
		return "ppm"
	}
	return "bin"
}

// pictures are the extensions of pictures; none is empty.
func pictures() []string {
	return []string{"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "webp", "gif", "bmp", "tif", "tiff"}
}

// known are extensions that tell the contents of a field.
func known() []string {
	return append(pictures(),
		"json", "txt", "cls", "cls2", "npy", "bin", "mp3", "wav", "flac", "mp4", "html", "xml", "csv")
}
