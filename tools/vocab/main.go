// Command vocab writes the tables of internal/tool/pack/token: OpenAI's vocabularies,
// compressed.
//
//	go run ./vocab FOLDER
//
// A table is the 256 tokens of one byte, which have the lowest ranks, and then for every
// other token the ranks of two earlier ones that it is joined of: the left one's and the
// right one's, 24 bits each, as six rows of bytes (left high, left middle, left low, right
// high, ...), of which the high ones compress well. That is a fifth less than the text of
// the tokens, compressed.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"github.com/tiktoken-go/tokenizer/codec"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vocab FOLDER")
		os.Exit(2)
	}
	for name, c := range map[string]*codec.Codec{
		"gpt2": codec.NewR50kBase(), "cl100k_base": codec.NewCl100kBase(), "o200k_base": codec.NewO200kBase(),
	} {
		b, err := table(c)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name+".zst"), b, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d bytes\n", name, len(b))
	}
}

// table is the table of a vocabulary. Its ranks have no gaps: the first number without a
// token is the end.
func table(c *codec.Codec) ([]byte, error) {
	var ones []byte
	var rows [6][]byte
	ranks := map[string]int{}
	for rank := 0; ; rank++ {
		token, err := c.Decode([]uint{uint(rank)})
		if err != nil {
			break
		}
		switch {
		case rank < 256 && len(token) == 1:
			ones = append(ones, token[0])
		case rank < 256 || len(token) < 2:
			return nil, fmt.Errorf("token %d has %d bytes", rank, len(token))
		default:
			left, right, found := split(token, ranks)
			if !found {
				return nil, fmt.Errorf("token %d is not two earlier ones", rank)
			}
			for i := range 3 {
				rows[i] = append(rows[i], byte(left>>(16-8*i)))
				rows[3+i] = append(rows[3+i], byte(right>>(16-8*i)))
			}
		}
		ranks[token] = rank
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.EncodeAll(append(ones, bytes.Join(rows[:], nil)...), nil), nil
}

// split is a token as two of the known ones. Of several ways, the one with the lowest rank
// on the right compresses best.
func split(token string, ranks map[string]int) (left, right int, found bool) {
	for i := 1; i < len(token); i++ {
		l, one := ranks[token[:i]]
		r, two := ranks[token[i:]]
		if one && two && (!found || r < right) {
			left, right, found = l, r, true
		}
	}
	return left, right, found
}
