package token

import (
	"bytes"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// openAI is a vocabulary of OpenAI's.
type openAI struct {
	name   string
	file   string // what tiktoken's file of it is called
	tokens int    // of its table: the highest rank plus one
	end    int64  // "<|endoftext|>"
	size   int    // its last special token plus one
	split  func(*splitter, string) int
}

// openAIs are the vocabularies that are built in, and those whose files work too.
func openAIs() []openAI {
	return []openAI{
		{"gpt2", "r50k_base", 50256, 50256, 50257, (*splitter).gpt2},
		{"", "p50k_base", 50281, 50256, 50281, (*splitter).gpt2},
		{"cl100k_base", "cl100k_base", 100256, 100257, 100277, (*splitter).cl100k},
		{"o200k_base", "o200k_base", 199998, 199999, 200019, (*splitter).o200k},
	}
}

//go:generate go -C ../../../../tools run ./vocab ../internal/tool/pack/token/tables

// tables are the vocabularies, compressed (zstd): 256 tokens of one byte, and for every other
// one the ranks of the two earlier ones that it is joined of, as tools/vocab writes them.
//
//go:embed tables/*.zst
var tables embed.FS

// builtIn unpacks a vocabulary.
func (o openAI) builtIn() (*ranks, error) {
	packed, err := tables.ReadFile("tables/" + o.name + ".zst")
	if err != nil {
		return nil, err
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	ones, joined := b[:256], b[256:]
	n := len(joined) / 6
	text := append(make([]byte, 0, 8*n), ones...)
	begin := make([]int, 257, 257+n) // begin[rank] is where a token begins in text
	for i := range begin {
		begin[i] = i
	}
	row := func(number, i int) int { return int(joined[number*n+i]) }
	for i := range n {
		left := row(0, i)<<16 | row(1, i)<<8 | row(2, i)
		right := row(3, i)<<16 | row(4, i)<<8 | row(5, i)
		text = append(text, text[begin[left]:begin[left+1]]...)
		text = append(text, text[begin[right]:begin[right+1]]...)
		begin = append(begin, len(text))
	}
	r, all := newRanks(256+n), string(text)
	for rank := range 256 + n {
		r.add(all[begin[rank]:begin[rank+1]], uint32(rank))
	}
	return r, nil
}

// tokenizer returns the tokenizer of a table.
func (o openAI) tokenizer(name string, r *ranks) *Tokenizer {
	s := newSplitter()
	t := &Tokenizer{Name: name, Size: o.size, End: o.end}
	if int(r.most)+1 != o.tokens { // a table of the user's: its end of text is its own
		t.End = int64(r.most) + 1
		t.Size = int(t.End) + 1
	}
	t.encode = func(text string, dst []uint32) ([]uint32, error) {
		for text != "" {
			n := o.split(s, text)
			if n > longest {
				return nil, errs.New(errs.Config, "the text has a word of %d bytes; the most is %d", n, longest).Try("check that it is text")
			}
			dst = r.word(text[:n], dst)
			text = text[n:]
		}
		return dst, nil
	}
	return t
}

// openFile reads tiktoken's file of a vocabulary. It does not say how text is split, which
// its name does.
func openFile(name string, b []byte) (*Tokenizer, error) {
	var all []string
	for _, o := range openAIs() {
		for _, called := range []string{o.name, o.file} {
			if called != "" && strings.HasPrefix(filepath.Base(name), called) {
				r, err := parseRanks(b)
				if err != nil {
					return nil, errs.New(errs.Damaged, "not a tiktoken vocabulary").At(at(name)).Because(err)
				}
				return o.tokenizer(name, r), nil
			}
		}
		all = append(all, o.file)
	}
	return nil, errs.New(errs.Config, "a tiktoken file does not say how it splits text, and its name tells nothing").At(at(name)).
		Try("give it a name that begins with that of the vocabulary whose split pattern it uses: %s (gpt2's)", strings.Join(all, ", "))
}

// parseRanks reads lines of a token in base64, a blank, and its rank.
func parseRanks(b []byte) (*ranks, error) {
	r := newRanks(bytes.Count(b, []byte{'\n'}))
	taken := map[uint32]bool{}
	line := 0
	for row := range bytes.Lines(b) {
		line++
		row = bytes.TrimRight(row, "\r\n")
		if len(row) == 0 {
			continue
		}
		word, number, two := strings.Cut(string(row), " ")
		text, err := base64.StdEncoding.DecodeString(word)
		if !two || err != nil || len(text) == 0 {
			return nil, fmt.Errorf("line %d does not begin with a token in base64 and a blank", line)
		}
		rank, err := strconv.ParseInt(number, 10, 32)
		if err != nil || rank < 0 || rank == 1<<31-1 {
			return nil, fmt.Errorf("line %d: %q is not a rank", line, number)
		}
		if taken[uint32(rank)] {
			return nil, fmt.Errorf("line %d: another token has rank %d", line, rank)
		}
		taken[uint32(rank)] = true
		if !r.add(string(text), uint32(rank)) {
			return nil, fmt.Errorf("line %d has the token of another line", line)
		}
	}
	if len(taken) == 0 {
		return nil, errors.New("it is empty")
	}
	for b, rank := range r.ones {
		if rank == none {
			return nil, fmt.Errorf("it has no token for the byte %#02x", b)
		}
	}
	return r, nil
}
