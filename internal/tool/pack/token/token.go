// Package token converts text to token numbers: with OpenAI's byte-pair encodings,
// whose vocabularies are built in, and with SentencePiece models, from their file.
// The tokens are those of tiktoken (encode_ordinary) and sentencepiece; no network
// is needed.
package token

import (
	"bytes"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Tokenizer is one vocabulary. Safe for concurrent use.
type Tokenizer struct {
	Name string
	Size int // of the vocabulary: token numbers are smaller
	// End is the token that ends a document, "<|endoftext|>" or "</s>"; -1 if the
	// vocabulary has none.
	End    int64
	encode func(text string, dst []uint32) ([]uint32, error)
}

// Names are the built-in vocabularies.
func Names() []string { return []string{"gpt2", "cl100k_base", "o200k_base"} }

// Open opens a vocabulary by name, or from a SentencePiece model's file.
func Open(name string) (*Tokenizer, error) {
	switch name {
	case "gpt2":
		return gpt(name, codec.NewR50kBase(), 50257), nil
	case "cl100k_base":
		return gpt(name, codec.NewCl100kBase(), 100277), nil
	case "o200k_base":
		return gpt(name, codec.NewO200kBase(), 200019), nil
	}
	if !strings.HasSuffix(name, ".model") {
		e := errs.New(errs.Config, "unknown vocabulary %q", name)
		if near := errs.Nearest(name, Names()); near != "" {
			return nil, e.Try("did you mean %q?", near)
		}
		return nil, e.Try("the choices are %s, or a SentencePiece file that ends in .model", strings.Join(Names(), ", "))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, errs.New(errs.NotFound, "cannot read the model").At(at(name)).Because(err)
	}
	m, err := parseModel(b)
	if err != nil {
		return nil, errs.New(errs.Damaged, "not a SentencePiece model that can be used").At(at(name)).Because(err)
	}
	return &Tokenizer{Name: name, Size: len(m.pieces), End: m.end, encode: m.encode}, nil
}

func at(file string) errs.Where { return errs.Where{File: file} }

// gpt returns one of OpenAI's encodings; size is the number of its last special
// token plus one.
func gpt(name string, c *codec.Codec, size int) *Tokenizer {
	end, _ := map[string]int64{"gpt2": 50256, "cl100k_base": 100257, "o200k_base": 199999}[name]
	return &Tokenizer{Name: name, Size: size, End: end, encode: func(text string, dst []uint32) ([]uint32, error) {
		for text != "" {
			n := cut(text)
			ids, _, err := c.Encode(text[:n])
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				dst = append(dst, uint32(id))
			}
			text = text[n:]
		}
		return dst, nil
	}}
}

// runLen is about how much text a codec gets at once, in bytes: it allocates some
// twenty times that.
const runLen = 256 << 10

// cut is where text may be split without changing its tokens: between an ASCII
// letter and a line feed, which no piece of any of the three patterns spans.
func cut(text string) int {
	if len(text) <= runLen {
		return len(text)
	}
	for i := runLen; i < len(text); i++ {
		if c := text[i-1] | 0x20; text[i] == '\n' && 'a' <= c && c <= 'z' {
			return i
		}
	}
	return len(text)
}

// Document appends the tokens of a text, and the token that ends a document. Text
// that is not UTF-8 is an error: there is no agreement about its tokens.
func (t *Tokenizer) Document(text []byte, dst []uint32) ([]uint32, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) {
		i := 0
		for r, n := utf8.DecodeRune(text); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(text[i:]) {
			i += n
		}
		return nil, errs.New(errs.Damaged, "the text is not UTF-8: its byte %d is %#02x", i, text[i]).Try("convert it, for example with iconv")
	}
	dst, err := t.encode(string(text), dst)
	if err != nil {
		return nil, errs.New(errs.Bug, "cannot convert the text to tokens").Because(err)
	}
	if t.End >= 0 {
		dst = append(dst, uint32(t.End))
	}
	return dst, nil
}
