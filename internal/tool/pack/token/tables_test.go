package token

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// file is a vocabulary as tiktoken's file has it.
func file(r *ranks) []byte {
	tokens := slices.SortedFunc(maps.Keys(r.byText), func(a, b string) int { return int(r.byText[a]) - int(r.byText[b]) })
	var b []byte
	for _, t := range tokens {
		b = fmt.Appendf(b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(t)), r.byText[t])
	}
	return b
}

// The tables are the vocabularies of OpenAI: the checksums are those of the files that
// tiktoken fetches, as its openai_public.py has them.
func TestTablesAreOpenAIs(t *testing.T) {
	want := map[string]string{
		"gpt2":        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
		"cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
		"o200k_base":  "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
	}
	for _, o := range openAIs() {
		if o.name == "" {
			continue
		}
		r, err := o.builtIn()
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(file(r)); hex.EncodeToString(sum[:]) != want[o.name] {
			t.Errorf("%s has the checksum %x", o.name, sum)
		}
		delete(want, o.name)
	}
	if len(want) > 0 {
		t.Errorf("%v are not built in", want)
	}
}

// tiktoken's own file of a vocabulary gives the tokens of the built-in one, and a shorter
// one has an end of text of its own.
func TestFileOfTiktoken(t *testing.T) {
	r, err := openAIs()[0].builtIn()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	open := func(name, text string) *Tokenizer {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		k, err := Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	all := string(file(r))
	text := []byte("It's a text,  with 1234 words\n\n naïve 日本語")
	want, err := Open("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"r50k_base.tiktoken", "gpt2.tiktoken"} {
		k := open(name, all)
		a, _ := want.Document(text, nil)
		b, err := k.Document(text, nil)
		if err != nil || !slices.Equal(a, b) || k.Size != want.Size || k.End != want.End {
			t.Errorf("%s: %v, not %v (%v)", name, b, a, err)
		}
	}
	short := strings.Join(strings.SplitAfter(all, "\n")[:300], "")
	if k := open("gpt2-mine.tiktoken", strings.ReplaceAll(short, "\n", "\r\n")); k.End != 300 || k.Size != 301 {
		t.Errorf("a vocabulary of 300 tokens ends documents with %d of %d", k.End, k.Size)
	}
}

// A file that is not a vocabulary is refused, and the error says in which line.
func TestBadFilesOfTiktoken(t *testing.T) {
	r, err := openAIs()[0].builtIn()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(file(r)), "\n")[:300]
	good := strings.Join(lines, "")
	dir := t.TempDir()
	for what, c := range map[string]struct {
		name, text string
		code       errs.Code
		says       string
	}{
		"a name that tells nothing": {"mine.tiktoken", good, errs.Config, "cl100k_base"},
		"empty":                     {"gpt2.tiktoken", "", errs.Damaged, "it is empty"},
		"not base64":                {"gpt2.tiktoken", good + "!!! 300\n", errs.Damaged, "line 301"},
		"without a rank":            {"gpt2.tiktoken", good + "YWJjZA==\n", errs.Damaged, "line 301"},
		"a rank of another":         {"gpt2.tiktoken", good + "YWJjZGVm 7\n", errs.Damaged, "rank 7"},
		"a token of another":        {"gpt2.tiktoken", good + strings.Fields(lines[7])[0] + " 300\n", errs.Damaged, "another line"},
		"a negative rank":           {"gpt2.tiktoken", good + "YWJjZGVm -7\n", errs.Damaged, "not a rank"},
		"a missing byte":            {"gpt2.tiktoken", strings.Join(lines[1:], ""), errs.Damaged, "no token for the byte"},
	} {
		name := filepath.Join(dir, c.name)
		if err := os.WriteFile(name, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(name)
		if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(err.Error()+e.Hint, c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The heap for long words gives the tokens that looking at all pairs gives.
func TestMergesAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r, err := openAIs()[0].builtIn()
	if err != nil {
		t.Fatal(err)
	}
	for range 20_000 {
		b := make([]byte, 2+rng.IntN(short-1))
		letters := "aaabeinrst \n\xe3\x81"
		for i := range b {
			b[i] = letters[rng.IntN(len(letters))]
		}
		word := string(b)
		if a, b := r.scan(word, nil), r.merge(word, nil); !slices.Equal(a, b) {
			t.Fatalf("%q is %v, and %v with the heap", word, a, b)
		}
	}
}

// A word of a megabyte takes no longer than a text of words: the heap is O(n log n), and
// a quadratic merge would take hours.
func TestLongWord(t *testing.T) {
	k, err := Open("cl100k_base")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := k.Document([]byte(strings.Repeat("ab", 1<<19)), nil)
	if err != nil || len(ids) < 1000 {
		t.Fatal(len(ids), err)
	}
}

// Any bytes as a vocabulary's file are refused or work, without a panic.
func FuzzRanks(f *testing.F) {
	r, err := openAIs()[0].builtIn()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(strings.Join(strings.SplitAfter(string(file(r)), "\n")[:260], "")), "some text 12\n")
	f.Add([]byte("YQ== 0\n"), "a")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		r, err := parseRanks(b)
		if err != nil {
			return
		}
		for _, o := range openAIs() {
			k := o.tokenizer("x", r)
			ids, err := k.encode(strings.ToValidUTF8(text, "?"), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if int(id) >= k.Size {
					t.Fatalf("token %d of %d", id, k.Size)
				}
			}
		}
	})
}
