package token

import (
	"os"
	"testing"
)

// A model that is cut or altered is an error or works: it never panics, and gives
// no token that it has not.
func FuzzModel(f *testing.F) {
	for _, name := range []string{"unigram", "bpe"} {
		b, err := os.ReadFile("../../../../testdata/pack/" + name + ".model")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)/2], "text with <sep>")
		f.Add(b, "\ufb01 \uff21\n\xff")
	}
	f.Fuzz(func(t *testing.T, model []byte, text string) {
		m, err := parseModel(model)
		if err != nil {
			return
		}
		ids, err := m.encode(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if int(id) >= len(m.pieces) {
				t.Fatalf("token %d of %d", id, len(m.pieces))
			}
		}
	})
}
