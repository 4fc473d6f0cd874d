package gather

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// sources are the files of a script's own code, read to say where a value was set and
// what is written in a line. They are read as text: what is not found is left out, and
// the line of the loader stands for it.
type sources struct {
	paths []string // the main one first
	files map[string][]string
}

const (
	longestSource = 1 << 20 // bytes of a file that is read
	longestCall   = 80      // lines of one call
)

func newSources(paths []string) *sources { return &sources{paths, map[string][]string{}} }

// lines of a file; none if it cannot be read.
func (s *sources) lines(path string) []string {
	if known, ok := s.files[path]; ok {
		return known
	}
	s.files[path] = nil
	if is, err := os.Stat(path); err != nil || !is.Mode().IsRegular() || is.Size() > longestSource || filepath.Ext(path) != ".py" {
		return nil
	}
	if b, err := os.ReadFile(path); err == nil {
		s.files[path] = strings.Split(string(b), "\n")
	}
	return s.files[path]
}

// lineAt splits a location that the hook writes as FILE:FUNCTION:LINE into the lines of
// the file and the number of the line in it.
func (s *sources) lineAt(at string) (lines []string, number int) {
	at, _, _ = strings.Cut(at, " ")
	parts := strings.Split(at, ":")
	if len(parts) < 2 {
		return nil, 0
	}
	number, err := strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		return nil, 0
	}
	for _, path := range s.paths {
		if filepath.Base(path) == parts[0] {
			if lines = s.lines(path); number >= 1 && number <= len(lines) {
				return lines, number
			}
		}
	}
	return nil, 0
}

// annotate adds to frames what is written in their lines.
func (s *sources) annotate(frames []evidence.Frame) {
	for i, f := range frames {
		if lines, n := s.lineAt(f.At); n > 0 {
			frames[i].Text = show.OneLine(strings.TrimSpace(statement(lines, n-1)))
			if sql := s.query(frames[i].Text); sql != "" {
				frames[i].Text += "  # " + strings.Join(strings.Fields(sql), " ")
			}
			frames[i].Loop = inLoop(lines, n-1)
		}
	}
}

var (
	executed = regexp.MustCompile(`(?:\.execute|read_sql\w*)\(\s*(?:\w+\.)*([A-Za-z_]\w*)\s*[,)]`)
	selects  = regexp.MustCompile(`(?i)\bselect\b`)
)

// query is the statement that gives its text to a query that is executed by a name; empty
// where the query is written in place, or the name is not found.
func (s *sources) query(text string) string {
	m := executed.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	is := regexp.MustCompile(`^\s*(?:self\.)?` + regexp.QuoteMeta(m[1]) + `\s*(?::[^=]*)?=[^=]`)
	for _, path := range s.paths {
		lines := s.lines(path)
		for i, line := range lines {
			if is.MatchString(line) {
				if made := strings.TrimSpace(statement(lines, i)); selects.MatchString(made) {
					return made
				}
			}
		}
	}
	return ""
}

// text is the statement at a location.
func (s *sources) text(at string) string {
	lines, n := s.lineAt(at)
	if n == 0 {
		return ""
	}
	return strings.TrimSpace(statement(lines, n-1))
}

var looping = regexp.MustCompile(`\bfor\b.+\bin\b|\bwhile\b`)

// inLoop says whether a line is in a loop of its function, or has one of its own.
func inLoop(lines []string, at int) bool {
	depth := indentOf(lines[at])
	if looping.MatchString(uncommented(lines[at])) {
		return true
	}
	for i := at - 1; i >= 0 && depth > 0; i-- {
		line := strings.TrimSpace(uncommented(lines[i]))
		if line == "" || indentOf(lines[i]) >= depth {
			continue
		}
		depth = indentOf(lines[i])
		switch {
		case strings.HasPrefix(line, "def "), strings.HasPrefix(line, "async def "), strings.HasPrefix(line, "class "):
			return false
		case strings.HasPrefix(line, "for "), strings.HasPrefix(line, "while "):
			return true
		}
	}
	return false
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// uncommented is a line without its comment. A # in a text ends it, too: nothing that is
// looked for comes after one.
func uncommented(line string) string {
	line, _, _ = strings.Cut(line, "#")
	return line
}

// statement is the text from a line on until its brackets are closed, without comments.
func statement(lines []string, at int) string {
	var out strings.Builder
	depth := 0
	for i := at; i < min(len(lines), at+longestCall); i++ {
		line := uncommented(lines[i])
		if i > at {
			out.WriteByte('\n')
		}
		out.WriteString(line)
		depth += strings.Count(line, "(") + strings.Count(line, "[") + strings.Count(line, "{")
		depth -= strings.Count(line, ")") + strings.Count(line, "]") + strings.Count(line, "}")
		if depth <= 0 {
			break
		}
	}
	return out.String()
}

// settings are those whose own lines are looked for.
var settings = [...]string{"num_workers", "prefetch_factor", "persistent_workers", "batch_size", "pin_memory", "collate_fn"}

// settingsOf are the lines that say what a loader's settings are.
func (s *sources) settingsOf(calls []callLine) map[string]string {
	out := map[string]string{}
	for _, name := range settings {
		if at := s.setting(calls, name); at != "" {
			out[name] = at
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// setting is the line where a value of that name was written, which these calls, innermost
// first, have passed on; empty if none says it.
func (s *sources) setting(calls []callLine, name string) string {
	open := false // an inner call takes it out of **options
	for i, c := range calls {
		lines := s.lines(c.Path)
		if c.Line < 1 || c.Line > len(lines) {
			continue
		}
		text := statement(lines, c.Line-1)
		if value, at, ok := keyword(text, name); ok {
			return s.resolve(calls[i:], value, c.Line+at, 0)
		}
		if at := unpacked(lines, c.Line, text, name); at > 0 {
			return position(c.Path, at)
		}
		open = open || strings.Contains(text, "**")
	}
	if !open {
		return ""
	}
	return s.anywhere(name)
}

func position(path string, line int) string {
	return fmt.Sprintf("%s:%d", filepath.Base(path), line)
}

// keyword is the value of a keyword in a call's text, and the line of it there.
func keyword(text, name string) (value string, line int, ok bool) {
	at := regexp.MustCompile(`(?:^|[(,\s])` + regexp.QuoteMeta(name) + `\s*=[^=]`).FindStringIndex(text)
	if at == nil {
		return "", 0, false
	}
	from, depth := at[1]-1, 0
	end := len(text)
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth < 0 || depth == 0 && text[i] == ',' {
			end = i
			break
		}
	}
	start := at[0] + strings.Index(text[at[0]:], name)
	return strings.TrimSpace(text[from:end]), strings.Count(text[:start], "\n"), true
}

var (
	aName  = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	dotted = regexp.MustCompile(`^[\w.]+\.([A-Za-z_]\w*)$`)
	keyed  = regexp.MustCompile(`^[\w.]+(?:\[["'](\w+)["']\]|\.get\(["'](\w+)["'].*\))$`)
)

// resolve follows a value through parameters, names, attributes and keys to where it is
// written; calls[0] is the call that it is written in, at a line.
func (s *sources) resolve(calls []callLine, value string, line, depth int) string {
	here := position(calls[0].Path, line)
	if depth > 6 {
		return here
	}
	switch {
	case value == "True", value == "False", value == "None":
		return here
	case aName.MatchString(value):
		return s.named(calls, value, here, line, depth)
	case dotted.MatchString(value):
		return cmp.Or(s.anywhere(dotted.FindStringSubmatch(value)[1]), here)
	case keyed.MatchString(value):
		m := keyed.FindStringSubmatch(value)
		return cmp.Or(s.anywhere(m[1]+m[2]), here)
	}
	return here
}

// named is where a name got its value: as a parameter by the call before, or by what it
// defaults to, or in an assignment above.
func (s *sources) named(calls []callLine, name, here string, line, depth int) string {
	lines := s.lines(calls[0].Path)
	head := 0 // the line of the function's def
	for i := min(line, len(lines)) - 1; i >= 0 && calls[0].Func != "<module>"; i-- {
		if strings.Contains(lines[i], "def "+calls[0].Func+"(") {
			head = i + 1
			break
		}
	}
	assigned := regexp.MustCompile(`^\s*` + regexp.QuoteMeta(name) + `\s*(?::[^=]*)?=[^=]`)
	for i := line - 2; i >= head && i >= 0; i-- { // in the function itself, or the module
		if assigned.MatchString(lines[i]) {
			_, right, _ := strings.Cut(uncommented(lines[i]), "=")
			return s.resolve(calls, strings.TrimSpace(right), i+1, depth+1)
		}
	}
	if head > 0 {
		if default_, at, ok := parameter(statement(lines, head-1), name); ok {
			if len(calls) > 1 {
				outer := s.lines(calls[1].Path)
				if n := calls[1].Line; n >= 1 && n <= len(outer) {
					if value, in, ok := keyword(statement(outer, n-1), name); ok {
						return s.resolve(calls[1:], value, n+in, depth+1)
					}
					if default_ == "" || positional(statement(lines, head-1), statement(outer, n-1), name) {
						return position(calls[1].Path, n)
					}
				}
			}
			return position(calls[0].Path, head+at)
		}
	}
	for i := range lines {
		if assigned.MatchString(lines[i]) && indentOf(lines[i]) == 0 {
			return position(calls[0].Path, i+1)
		}
	}
	return here
}

// parameter is what a parameter of a def defaults to, and the line of it there.
func parameter(def, name string) (value string, line int, ok bool) {
	m := regexp.MustCompile(`[(,\s*]` + regexp.QuoteMeta(name) + `\s*(?::[^,=]*)?(?:=\s*([^,)]+))?\s*[,)]`).FindStringSubmatchIndex(def)
	if m == nil {
		return "", 0, false
	}
	if m[2] >= 0 {
		value = strings.TrimSpace(def[m[2]:m[3]])
	}
	start := m[0] + strings.Index(def[m[0]:], name)
	return value, strings.Count(def[:start], "\n"), true
}

// unpacked is the line of a value in what a call takes as **NAME, if NAME was assigned above
// it; 0 if it is not there.
func unpacked(lines []string, line int, text, name string) int {
	for _, m := range regexp.MustCompile(`\*\*([A-Za-z_]\w*)`).FindAllStringSubmatch(text, -1) {
		is := regexp.MustCompile(`^\s*` + m[1] + `\s*=[^=]`)
		for i := line - 2; i >= 0; i-- {
			if !is.MatchString(lines[i]) {
				continue
			}
			made := statement(lines, i)
			if _, at, ok := keyword(made, name); ok {
				return i + 1 + at
			}
			if at := key(strings.Split(made, "\n"), name); at > 0 {
				return i + at
			}
		}
	}
	return 0
}

// positional says whether a call gives a parameter of a def by its position.
func positional(def, call, name string) bool {
	params := argumentsOf(def)
	if len(params) > 0 && (params[0] == "self" || params[0] == "cls") {
		params = params[1:]
	}
	given := 0
	for _, a := range argumentsOf(call) {
		if strings.HasPrefix(a, "*") || regexp.MustCompile(`^\w+\s*=[^=]`).MatchString(a) {
			break
		}
		given++
	}
	at := slices.IndexFunc(params, func(p string) bool {
		p, _, _ = strings.Cut(p, "=")
		p, _, _ = strings.Cut(p, ":")
		return strings.TrimSpace(p) == name
	})
	return at >= 0 && at < given
}

// argumentsOf are those of the first call, or of the def, in a text.
func argumentsOf(text string) (out []string) {
	from := strings.IndexByte(text, '(') + 1
	if from == 0 {
		return nil
	}
	depth, begin := 0, from
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth < 0 || depth == 0 && text[i] == ',' {
			if a := strings.TrimSpace(text[begin:i]); a != "" {
				out = append(out, a)
			}
			begin = i + 1
		}
		if depth < 0 {
			break
		}
	}
	return out
}

// key is the first line that gives a name a value: an option of a command line, a key of
// a dictionary, an attribute, a keyword.
func key(lines []string, name string) int {
	dashed := strings.ReplaceAll(regexp.QuoteMeta(name), "_", "[-_]")
	for _, form := range []string{
		`add_argument\(.*["']--` + dashed + `["']`,
		`["']` + dashed + `["']\s*:`,
		`["']` + dashed + `["']\]\s*=[^=]`,
		`^\s*` + regexp.QuoteMeta(name) + `\s*(?::[^=]*)?=\s*[^=\s]`,
		`[.(,\s]` + regexp.QuoteMeta(name) + `\s*=\s*(?:[0-9]|True|False|None)`,
	} {
		is := regexp.MustCompile(form)
		if i := slices.IndexFunc(lines, func(l string) bool { return is.MatchString(uncommented(l)) }); i >= 0 {
			return i + 1
		}
	}
	return 0
}

var target = regexp.MustCompile(`^\s*((?:\w+\.)*\w+)\s*(?::[^=]*)?=[^=]`)

// leading is a statement's head before an assignment in the same line.
var leading = regexp.MustCompile(`^\s*(?:else|try|finally|(?:if|elif|with|for|while)\b[^=]*?)\s*:\s*`)

// assigned is the name that the script's innermost call which made a loader is assigned to.
func (s *sources) assigned(calls []callLine) string {
	for _, c := range calls {
		lines := s.lines(c.Path)
		if c.Line < 1 || c.Line > len(lines) {
			continue
		}
		line := leading.ReplaceAllString(uncommented(lines[c.Line-1]), "")
		m := target.FindStringSubmatch(line)
		_, right, _ := strings.Cut(line, "=")
		if right = strings.TrimSpace(right); m != nil && right != "" && !strings.HasSuffix(right, "),") && !strings.ContainsAny(right[:1], "[{(") {
			return m[1]
		}
	}
	return ""
}

// anywhere is that in any of the script's files.
func (s *sources) anywhere(name string) string {
	for _, path := range s.paths {
		if at := key(s.lines(path), name); at > 0 {
			return position(path, at)
		}
	}
	return ""
}

// made is the line where the script makes an object of a class; empty where it does not.
func (s *sources) made(class string) string {
	is := regexp.MustCompile(`(?:^|[^\w])` + regexp.QuoteMeta(class) + `\s*\(`)
	for _, path := range s.paths {
		for i, line := range s.lines(path) {
			text := uncommented(line)
			start := strings.TrimSpace(text)
			if is.MatchString(text) && !strings.HasPrefix(start, "class ") && !strings.HasPrefix(start, "def ") && !strings.HasPrefix(start, "import ") && !strings.HasPrefix(start, "from ") {
				return position(path, i+1)
			}
		}
	}
	return ""
}
