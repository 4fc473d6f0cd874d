package errs

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// What is taken away is what is secret, and nothing else; twice changes nothing more.
func TestShown(t *testing.T) {
	text, err := os.ReadFile("../../../testdata/shown.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Names, Texts map[string]string }
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Names) < 20 || len(golden.Texts) < 5 {
		t.Fatal(len(golden.Names), err)
	}
	for _, all := range []map[string]string{golden.Names, golden.Texts} {
		for given, want := range all {
			if got := Shown(given); got != want && !strings.HasPrefix(given, "/") {
				t.Errorf("%s\n is shown as %s\n not as      %s", given, got, want)
			}
			if got := Shown(want); got != want {
				t.Errorf("%s becomes %s", want, got)
			}
			if strings.Contains(want, "HUSH") {
				t.Errorf("%s has a secret", want)
			}
		}
	}
}

// No part of an error shows a secret.
func TestErrorsShowNoSecrets(t *testing.T) {
	const url = "https://u:HUSH@h/x.tar?sig=HUSH"
	e := New(Denied, "the server refused %s", url).At(Where{File: url, Shard: url, Member: url}).Because(errors.New("Get "+url)).Try("open %s", url)
	if text := e.Error(); strings.Contains(text, "HUSH") || strings.Count(text, "https://h/x.tar") < 4 {
		t.Errorf("%s", text)
	}
}

func FuzzShown(f *testing.F) {
	for _, s := range []string{"https://u:p@h/x?sig=1&v=2", "://@:?=&;#", "a://b:c/d@e?token=%zz", `\u0026sig=1://`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := Shown(s)
		if len(once) > len(s) {
			t.Fatalf("%q becomes %q", s, once)
		}
	})
}

// A command line that is kept has no secrets of its flags and URLs.
func TestShownWords(t *testing.T) {
	given := strings.Fields("python train.py --hf-token HUSH --api_key=HUSH -v --secret --tokenizer gpt2 --data https://u:HUSH@h/x?sig=HUSH --data=s3://b/x --token")
	want := "python train.py --hf-token ... --api_key=... -v --secret --tokenizer gpt2 --data https://h/x --data=s3://b/x --token"
	if got := strings.Join(ShownWords(given), " "); got != want {
		t.Error(got)
	}
}
