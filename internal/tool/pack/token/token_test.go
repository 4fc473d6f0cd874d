package token_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/pack/token"
)

const testdata = "../../../../testdata/pack/"

// What tiktoken and sentencepiece make of the same texts; see testdata/pack/make.py.
func TestGolden(t *testing.T) {
	b, err := os.ReadFile(testdata + "tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var gold map[string]json.RawMessage
	var texts []string
	if err := json.Unmarshal(b, &gold); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(gold["texts"], &texts); err != nil || len(texts) < 20 {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"gpt2": "gpt2", "cl100k_base": "cl100k_base", "o200k_base": "o200k_base",
		"bpe": testdata + "bpe.model", "unigram": testdata + "unigram.model", "suffix": testdata + "suffix.model",
	} {
		k, err := token.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		var want [][]uint32
		if err := json.Unmarshal(gold[name], &want); err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			got, err := k.Document([]byte(text), nil)
			if err != nil || int64(got[len(got)-1]) != k.End || !slices.Equal(got[:len(got)-1], want[i]) {
				t.Errorf("%s: %q is %v, not %v (%v)", name, text, got, want[i], err)
			}
			for _, n := range got {
				if int(n) >= k.Size {
					t.Errorf("%s: token %d of %d", name, n, k.Size)
				}
			}
		}
	}
}

// A long text is cut into runs, and its tokens do not show where.
func TestLongText(t *testing.T) {
	k, err := token.Open("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	line := "Some words, and a number 42\n  indented letters\n"
	long, err := k.Document([]byte(strings.Repeat(line, 20_000)), nil)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := k.Document([]byte(strings.Repeat(line, 2)), nil)
	two, _ := k.Document([]byte(strings.Repeat(line, 3)), nil)
	each := two[len(one)-len(two)+len(one)-1 : len(one)-1]
	for at := len(one) - 1; at+len(each) < len(long); at += len(each) {
		if !slices.Equal(long[at:at+len(each)], each) {
			t.Fatalf("tokens at %d are %v, not %v", at, long[at:at+len(each)], each)
		}
	}
}

func TestErrorsTeach(t *testing.T) {
	for name, want := range map[string]string{"gpt3": `did you mean "gpt2"?`, "bert": "o200k_base", "none.model": ""} {
		_, err := token.Open(name)
		if e := errs.From(err); err == nil || errs.Classes[e.Code].Exit != 2 || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k, err := token.Open("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Document([]byte("abc\xff"), nil)
	if e := errs.From(err); err == nil || e.Code != errs.Damaged || !strings.Contains(e.What, "byte 3 is 0xff") {
		t.Error(err)
	}
}
