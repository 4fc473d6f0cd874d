package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	stoker "github.com/stoker-data/stoker"
)

// manInto is where TestManPages leaves the pages: `make man` writes build/man.
var manInto = flag.String("man", "", "the folder to write man pages into")

// The man pages are docs/cli.md: its chapters, with the lines of --help for what a verb
// is and its examples. mandoc finds nothing wrong with them.
func TestManPages(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	app, err := kong.New(&cli{}, kong.Name("stoker"))
	if err != nil {
		t.Fatal(err)
	}
	into := *manInto
	if into == "" {
		into = t.TempDir()
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		t.Fatal(err)
	}
	pages := manPages(app.Model, string(text))
	var files []string
	for name, page := range pages {
		files = append(files, filepath.Join(into, name))
		write(t, files[len(files)-1], []byte(page))
	}
	if pack := pages["stoker-pack.1"]; len(pages) < 16 || !strings.Contains(pack, `\-\-shard\-size`) ||
		!strings.Contains(pack, "max\\-pixels") || !strings.Contains(pages["stoker.1"], "STOKER_CACHE") {
		t.Errorf("%d pages; of pack:\n%s", len(pages), pack)
	}
	for name, page := range pages {
		if left := regexp.MustCompile("`|\\*\\*|\\]\\(|^\\|").FindString(page); left != "" {
			t.Errorf("%s has %q", name, left)
		}
	}
	if _, err := exec.LookPath("mandoc"); err != nil {
		t.Skip("mandoc is not installed")
	}
	out, _ := exec.CommandContext(t.Context(), "mandoc", append([]string{"-T", "lint", "-W", "warning"}, files...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "missing date") { // they have the version
			t.Error(line)
		}
	}
}

// manPages makes the pages: stoker.1, and one for every verb.
func manPages(app *kong.Application, text string) map[string]string {
	usage := map[string]string{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "stoker" && usage[words[1]] == "" {
			usage[words[1]] = strings.TrimSpace(strings.TrimPrefix(line, "stoker"))
		}
	}
	chapters := map[string]string{}
	var order []string
	head, rest, _ := strings.Cut(text, "\n## ")
	for c := range strings.SplitSeq(rest, "\n## ") {
		title, body, _ := strings.Cut(c, "\n")
		chapters[title] = body
		order = append(order, title)
	}
	_, head, _ = strings.Cut(head, "```\n\n") // after the lines of usage
	title := func(name string) string {
		return fmt.Sprintf(".TH %s 1 \"\" \"stoker %s\"\n.SH NAME\n", strings.ToUpper(roff(name)), stoker.Version())
	}
	about := func(n *kong.Node) string {
		s := strings.TrimSuffix(n.Help, ".")
		return roff(strings.ToLower(s[:1]) + s[1:])
	}
	pages := map[string]string{}
	var main strings.Builder
	main.WriteString(title("stoker") + "stoker \\- load training data, and find what limits the loading\n")
	main.WriteString(".SH SYNOPSIS\n.B stoker\n.I VERB\n[flags]\n.SH DESCRIPTION\n" + manText(head) + ".SH VERBS\n")
	for _, n := range app.Children {
		if n.Hidden {
			continue
		}
		fmt.Fprintf(&main, ".TP\n.BR stoker\\-%s (1)\n%s\n", roff(n.Name), about(n))
		page := title("stoker-"+n.Name) + fmt.Sprintf("stoker\\-%s \\- %s\n", roff(n.Name), about(n)) +
			".SH SYNOPSIS\n.B stoker\n" + roff(usage[n.Name]) + "\n.SH DESCRIPTION\n" + manText(chapters["stoker "+n.Name])
		if strings.Contains(chapters["stoker "+n.Name], "(#datasets)") {
			page += ".SH FLAGS OF DATASETS\n" + manText(chapters["Datasets"])
		}
		if h, is := n.Target.Addr().Interface().(kong.HelpProvider); is {
			if examples := strings.TrimPrefix(h.Help(), "Examples:\n\n"); examples != h.Help() {
				shown, after, _ := strings.Cut(examples, "\n\n")
				page += ".SH EXAMPLES\n" + verbatim(shown) + manText(after)
			}
		}
		pages["stoker-"+n.Name+".1"] = page + ".SH SEE ALSO\n.BR stoker (1)\n"
	}
	for _, c := range order {
		if !strings.HasPrefix(c, "stoker ") && c != "Datasets" {
			main.WriteString(".SH " + strings.ToUpper(c) + "\n" + manText(chapters[c]))
		}
	}
	pages["stoker.1"] = main.String()
	return pages
}

var (
	linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	bold   = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	code   = regexp.MustCompile("`([^`]+)`")
)

// roff is text without markup, so that nothing in it is a command.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// inline is a paragraph of Markdown as one line.
func inline(s string) string {
	s = linked.ReplaceAllString(strings.Join(strings.Fields(s), " "), "$1")
	s = roff(strings.ReplaceAll(s, `\|`, "|"))
	s = bold.ReplaceAllString(s, `\fB$1\fP`)
	return code.ReplaceAllString(s, `\fB$1\fP`)
}

func verbatim(s string) string {
	var b strings.Builder
	b.WriteString(".nf\n")
	for line := range strings.Lines(strings.Trim(s, "\n") + "\n") {
		if line = roff(strings.TrimSuffix(line, "\n")); line == "" {
			line = ".sp" // an empty line would end a macro that waits for its text
		}
		b.WriteString(line + "\n")
	}
	return b.String() + ".fi\n"
}

// item is the head and the text of an entry of a list.
func item(head, text string) string {
	if head == "" {
		return ".PP\n" + text + "\n"
	}
	return ".TP\n" + head + "\n" + text + "\n"
}

// manText is Markdown as a man page has it: paragraphs, lists, tables as lists, and
// blocks of code.
func manText(text string) string {
	var b strings.Builder
	first := true
	for len(text) > 0 {
		text = strings.TrimLeft(text, "\n")
		var block string
		if inside, is := strings.CutPrefix(text, "```"); is {
			_, inside, _ = strings.Cut(inside, "\n")
			block, text, _ = strings.Cut(inside, "```")
			b.WriteString(paragraph(first) + verbatim(block))
			first = false
			continue
		}
		block, text, _ = strings.Cut(text, "\n\n")
		switch {
		case strings.TrimSpace(block) == "":
		case strings.HasPrefix(block, "#"):
			b.WriteString(".SS " + inline(strings.TrimLeft(block, "# ")) + "\n")
			first = true
			continue
		case strings.HasPrefix(block, "|"):
			b.WriteString(table(block))
		case regexp.MustCompile(`^(- |\d\. )`).MatchString(block):
			for _, entry := range regexp.MustCompile(`(?m)^(?:- |\d\. )`).Split(block, -1)[1:] {
				b.WriteString(item(`\(bu`, inline(entry)))
			}
		default:
			b.WriteString(paragraph(first) + inline(block) + "\n")
		}
		first = false
	}
	return b.String()
}

// paragraph begins one; the first after a heading begins by itself.
func paragraph(first bool) string {
	if first {
		return ""
	}
	return ".PP\n"
}

// table is a table as a list: the first cell, and the others after it with the names of
// their columns, except for what the first cell means.
func table(block string) string {
	var b strings.Builder
	var columns []string
	for row := range strings.Lines(block) {
		row = strings.ReplaceAll(strings.Trim(strings.TrimSpace(row), "|"), `\|`, "\x00")
		cells := strings.Split(row, "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
		}
		switch {
		case columns == nil:
			columns = cells
			continue
		case strings.Trim(row, "-| ") == "":
			continue
		}
		var says []string
		for i, c := range cells[1:] {
			if c == "" || i+1 >= len(columns) {
				continue
			}
			if name := columns[i+1]; name != "meaning" && len(columns) > 2 {
				c = strings.ToUpper(name[:1]) + name[1:] + ": " + c
			}
			says = append(says, strings.TrimSuffix(inline(c), ".")+".")
		}
		b.WriteString(item(inline(cells[0]), strings.Join(says, "\n")))
	}
	return b.String()
}
