package token_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/pack/token"
)

// Text as trainers have it: English with code, and scripts without blanks.
func benchTexts(b *testing.B) map[string]string {
	manual, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		b.Fatal(err)
	}
	mixed := "日本語のテキスト。漢字かな交じり文 Привет, мир! Ещё раз. مرحبا بالعالم 한국어 문장입니다. naïve façade, 1234567 and 3.14\n"
	return map[string]string{
		"english": string(manual),
		"mixed":   strings.Repeat(mixed, 400),
		"one":     strings.Repeat("a", 64<<10),
	}
}

func BenchmarkDocument(b *testing.B) {
	for _, name := range token.Names() {
		k, err := token.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		for kind, text := range benchTexts(b) {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				var dst []uint32
				for b.Loop() {
					dst, err = k.Document([]byte(text), dst[:0])
				}
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, name := range token.Names() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := token.Open(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
