package prepare

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
	"github.com/stoker-data/stoker/internal/tool/pack/token"
)

// openTokens opens the vocabulary and decides which of the dataset's fields is
// text.
func (p *Program) openTokens(have []string) (err error) {
	if p.tokens, err = token.Open(p.opt.Tokenize); err != nil {
		return err
	}
	if p.opt.TextField == "" && p.format == "lines" {
		p.opt.TextField = "text"
	}
	for _, usual := range []string{"text", "txt", "content", "document", "article"} {
		if p.opt.TextField == "" && slices.Contains(have, usual) {
			p.opt.TextField = usual
		}
	}
	if p.opt.TextField == "" {
		return errs.New(errs.Config, "no field is called text; there are %s", strings.Join(have, ", ")).Try("say which one is, with --text-field")
	}
	p.opt.Fields = []string{p.opt.TextField}
	return nil
}

// TextField is the field that becomes tokens; "": none does.
func (p *Program) TextField() string { return p.opt.TextField }

// Vocabulary is what text is made tokens with; nil: it is not.
func (p *Program) Vocabulary() *token.Tokenizer { return p.tokens }

// tokenized is a text as its tokens.
func (p *Program) tokenized(l *Lane, f *format.Field) (shard.Field, error) {
	var err error
	if f.IsInt {
		return shard.Field{}, errs.New(errs.Config, "field %q is a number, and no text", f.Name)
	}
	if l.tokens, err = p.tokens.Document(f.Data, l.tokens[:0]); err != nil {
		return shard.Field{}, err
	}
	data := l.room(4 * len(l.tokens))
	for i, t := range l.tokens {
		binary.LittleEndian.PutUint32(data[4*i:], t)
	}
	return shard.Field{Name: "tokens", Data: data, DType: mem.Uint32, Shape: mem.Shape{len(l.tokens)}}, nil
}
