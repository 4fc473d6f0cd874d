package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// shellWords completes a command line with a shell's script, by that shell itself.
func shellWords(t *testing.T, shell, line, dir string) []string {
	t.Helper()
	script := filepath.Join(dir, "completion."+shell)
	write(t, script, []byte(command(t, "completion", shell).out))
	var args []string
	switch shell {
	case "bash":
		args = []string{"--norc", "-c", `source "$1"
read -ra COMP_WORDS <<<"${2//=/ = }"
[[ $2 != *' ' ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { COMPREPLY+=(:files); }
_stoker
printf '%s\n' "${COMPREPLY[@]}"`, "-", script, line}
	case "zsh":
		args = []string{"-f", "-c", `compdef() { : }
_files() { print -r -- :files }
_describe() { print -rl -- "${(@)${(P@)2}%%:*}" }
source "$1"
words=("${(@s: :)2}")
CURRENT=$#words
_stoker`, "-", script, line}
	case "fish":
		args = []string{"--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, script, line}
	}
	c := exec.CommandContext(t.Context(), shell, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", shell, err, out)
	}
	var found []string
	for row := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSpace(row), "\t")
		found = append(found, word)
	}
	return found
}

// The shells that are here complete verbs, flags, choices and files.
func TestShellsComplete(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "stoker"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(t, filepath.Join(dir, "dataset.tar"), nil)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip("this shell is not installed")
			}
			for line, want := range map[string]string{
				"stoker d":                     "demo diff doctor",
				"stoker pack --j":              "--jobs --jpeg --json",
				"stoker pack --output t":       "tar tfrecord tokens",
				"stoker pack data --compress ": "none zstd gzip lz4",
				"stoker completion ":           "bash zsh fish",
				"stoker help ver":              "verify verify-resume version",
			} {
				got := shellWords(t, shell, line, dir)
				words := strings.Fields(want)
				slices.Sort(got)
				slices.Sort(words)
				if !slices.Equal(got, words) {
					t.Errorf("%q: %q, not %q", line, got, words)
				}
			}
			if got := shellWords(t, shell, "stoker pack --output=to", dir); len(got) != 1 || !strings.HasSuffix(got[0], "tokens") {
				t.Errorf("--output=to: %q", got)
			}
			files := shellWords(t, shell, "stoker inspect data", dir)
			if len(files) != 1 || files[0] != ":files" && files[0] != "dataset.tar" {
				t.Errorf("files: %q", files)
			}
		})
	}
}

// What a word may become, without a shell.
func TestComplete(t *testing.T) {
	for line, want := range map[string]string{
		"pa":                      "pack",
		"pack --shard-size ":      ":files", // any value
		"pack --shuffle --tok":    "--token-env --token-type --tokenize",
		"pack --shuffle ":         ":files", // takes no value
		"pack --no-such-flag=":    "",
		"pack --datas":            "", // hidden
		"no-such-verb ":           ":files",
		"doctor -- python train.": ":files",
		"stats --on-bad = s":      "skip",
		"stats --on-bad =":        "fail skip",
		"eng":                     "", // hidden
		"--h":                     "--help",
	} {
		args := append([]string{"complete", "--"}, strings.Split(line, " ")...)
		r := command(t, args...)
		var got []string
		for row := range strings.Lines(r.out) {
			word, _, _ := strings.Cut(strings.TrimSpace(row), "\t")
			got = append(got, word)
		}
		slices.Sort(got)
		if r.status != 0 || strings.Join(got, " ") != want {
			t.Errorf("%q: %q (%d, %s)", line, got, r.status, r.err)
		}
	}
	if r := command(t, "completion", "bsh"); r.status != 2 || !strings.Contains(r.err, "bash") {
		t.Errorf("%+v", r)
	}
}

// Every choice that is completed is in the row of its flag in docs/cli.md.
func TestChoicesAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	formats, err := os.ReadFile("../../docs/guides/formats.md") // which has the choices of --format
	if err != nil {
		t.Fatal(err)
	}
	app, err := kong.New(&cli{}, kong.Vars{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, verb := range app.Model.Children {
		for _, f := range verb.Flags {
			rows := strings.Join(regexp.MustCompile("(?m)^\\|.*`--"+f.Name+"[ `].*$").FindAllString(string(manual), -1), "\n")
			if f.Tag.Get("choices") == "*formats" {
				rows = string(formats)
			}
			for _, c := range choices(f.Tag) {
				if seen++; !regexp.MustCompile(`\b` + c + `\b`).MatchString(rows) {
					t.Errorf("%s --%s %s is not in docs/cli.md", verb.Name, f.Name, c)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d choices", seen)
	}
}
