// Package token converts text to token numbers: with OpenAI's byte-pair encodings,
// whose vocabularies are built in or come from a tiktoken file, and with SentencePiece
// models, from their file. The tokens are those of tiktoken (encode_ordinary) and
// sentencepiece; no network is needed.
package token

import (
	"bytes"
	"os"
	"strings"
	"unicode/utf8"

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

// Open opens a vocabulary by name, or from a file: a SentencePiece model, or a tiktoken
// vocabulary.
func Open(name string) (*Tokenizer, error) {
	for _, o := range openAIs() {
		if o.name == name && name != "" {
			r, err := o.builtIn()
			if err != nil {
				return nil, errs.New(errs.Bug, "the vocabulary %s cannot be unpacked", name).Because(err)
			}
			return o.tokenizer(name, r), nil
		}
	}
	model, ranks := strings.HasSuffix(name, ".model"), strings.HasSuffix(name, ".tiktoken")
	if !model && !ranks {
		e := errs.New(errs.Config, "unknown vocabulary %q", name)
		if near := errs.Nearest(name, Names()); near != "" {
			return nil, e.Try("did you mean %q?", near)
		}
		return nil, e.Try("the choices are %s, a SentencePiece file that ends in .model, or a tiktoken file that ends in .tiktoken", strings.Join(Names(), ", "))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, errs.New(errs.NotFound, "cannot read the vocabulary").At(at(name)).Because(err)
	}
	if ranks {
		return openFile(name, b)
	}
	m, err := parseModel(b)
	if err != nil {
		return nil, errs.New(errs.Damaged, "not a SentencePiece model that can be used").At(at(name)).Because(err)
	}
	return &Tokenizer{Name: name, Size: len(m.pieces), End: m.end, encode: m.encode}, nil
}

func at(file string) errs.Where { return errs.Where{File: file} }

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
		return nil, err
	}
	if t.End >= 0 {
		dst = append(dst, uint32(t.End))
	}
	return dst, nil
}
