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

// openTokens opens the vocabulary and decides which field of the dataset is text.
func (p *Program) openTokens(have []string) (err error) {
	if p.tokens, err = token.Open(p.opt.Tokenize); err != nil {
		return err
	}
	if p.opt.TextField == "" {
		p.opt.TextField = p.names.Text
	}
	for _, usual := range []string{"text", "txt", "content", "document", "article"} {
		if p.opt.TextField == "" && slices.Contains(have, usual) {
			p.opt.TextField = usual
		}
	}
	if p.opt.TextField == "" {
		return errs.New(errs.Config, "there is no field \"text\"; the fields are %s", strings.Join(have, ", ")).Try("choose one with --text-field")
	}
	p.opt.Fields = []string{p.opt.TextField}
	return p.textual()
}

// textual rejects a field that the format declares as numbers: their bytes could be
// mistaken for text.
func (p *Program) textual() error {
	if p.typed == nil {
		return nil
	}
	t, ok := p.typed.Type(p.opt.TextField)
	if !ok || t.DType == mem.Object {
		return nil
	}
	what := t.DType.String()
	if t.Ragged || len(t.Shape) > 0 {
		what = "arrays of " + what
	}
	return errs.New(errs.Config, "field %q is not text: it is %s", p.opt.TextField, what).
		Try("choose the text field with --text-field; to pack numbers that are tokens already, use --output tokens without --tokenize")
}

// TextField is the field that becomes tokens; "" if there is none.
func (p *Program) TextField() string { return p.opt.TextField }

// Vocabulary is the tokenizer of text; nil if there is none.
func (p *Program) Vocabulary() *token.Tokenizer { return p.tokens }

// tokenized is a text as tokens.
func (p *Program) tokenized(l *Lane, f *format.Field) (shard.Field, error) {
	var err error
	switch {
	case f.IsInt:
		return shard.Field{}, errs.New(errs.Config, "field %q is not text: it is int64", f.Name).Try("choose the text field with --text-field")
	case f.JSON:
		return shard.Field{}, errs.New(errs.Damaged, "the text of this line is %s", jsonKind(f.Data)).At(errs.Where{Offset: errs.Known(f.Off)}).
			Try("repair or remove the line: a text is a string, and an empty one is \"\"")
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

// jsonKind is the kind of a JSON value that is not a string, in words.
func jsonKind(v []byte) string {
	switch v[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return string(v) + ", not a string"
	case '[':
		return "a list, not a string"
	case '{':
		return "an object, not a string"
	}
	return "a number, not a string"
}
