package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every flag of the verbs is in docs/cli.md, and every flag there exists.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`--[a-z][a-z-]+`)
	var all string
	for _, verb := range []string{"demo", "bench", "doctor", "inspect", "stats", "tune", "index", "verify", "ls", "cat", "pack", "order", "diff", "verify-resume", "version", "completion"} {
		help := command(t, verb, "--help").out
		all += help
		if !strings.Contains(string(manual), "## stoker "+verb) {
			t.Errorf("the manual has no chapter on %s", verb)
		}
		for _, f := range flags.FindAllString(help, -1) {
			if f != "--help" && !strings.Contains(string(manual), f) {
				t.Errorf("the manual does not know %s of %s", f, verb)
			}
		}
	}
	for _, f := range flags.FindAllString(string(manual), -1) {
		if !strings.Contains(all, f) {
			t.Errorf("the manual has %s, which no verb has", f)
		}
	}
}

// The table of ARCHITECTURE.md has the flags of bench, and no others.
func TestTableOfTheSpec(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`--[a-z][a-z-]+`)
	help := command(t, "bench", "--help").out
	_, table, _ := strings.Cut(string(text), "| Spec key | flag |")
	table, _, _ = strings.Cut(table, "\n\n")
	known := " --help --json --spec --epochs --samples --seconds --step-ms --need --gpus " // which are of no Spec
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, f := range flags.FindAllString(cells[2], -1) {
				if known += f + " "; !strings.Contains(help, f+" ") && !strings.Contains(help, f+"=") {
					t.Errorf("the table has %s, which bench has not", f)
				}
			}
		}
	}
	for _, f := range flags.FindAllString(help, -1) {
		if !strings.Contains(known, " "+f+" ") {
			t.Errorf("the table does not know %s", f)
		}
	}
}
