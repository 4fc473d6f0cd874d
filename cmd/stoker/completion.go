package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." choices:"bash,zsh,fish"`
}

func (completionCmd) Help() string {
	return `Examples:

  source <(stoker completion bash)                                     in ~/.bashrc
  stoker completion zsh >~/.zfunc/_stoker                              where fpath has ~/.zfunc
  stoker completion fish >~/.config/fish/completions/stoker.fish

It completes verbs, flags, the values of flags that have a list of choices, and files.`
}

// The scripts ask the command that is on the line, so that they fit any version of it.
// What it prints is lines of a word, a tab and a description; ":files" asks for files.
var completions = map[string]string{
	"bash": `# stoker(1) completion for bash
_stoker() {
	local line
	COMPREPLY=()
	while IFS= read -r line; do
		if [ "$line" = :files ]; then
			compopt -o default
		else
			COMPREPLY+=("${line%%$'\t'*}")
		fi
	done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _stoker stoker
`,
	"zsh": `#compdef stoker
# stoker(1) completion for zsh
_stoker() {
	local line files=
	local -a found
	while IFS= read -r line; do
		if [[ $line == :files ]]; then
			files=1
		else
			found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
		fi
	done < <("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
	local none=1
	(( $#found )) && _describe stoker found && none=0
	[[ -n $files ]] && _files && none=0
	return $none
}
if [[ $funcstack[1] == _stoker ]]; then
	_stoker "$@"
else
	compdef _stoker stoker
fi
`,
	"fish": `# stoker(1) completion for fish
function __stoker_complete
	set -l last (commandline -ct)
	set -l words (commandline -opc) "$last"
	for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
		if test "$line" = :files
			__fish_complete_path (commandline -ct)
		else
			echo $line
		end
	end
end
complete -c stoker -f -a '(__stoker_complete)'
`,
}

func (c completionCmd) Run(con *console) error {
	script, known := completions[c.Shell]
	if !known {
		shells := slices.Sorted(maps.Keys(completions))
		e := errs.New(errs.Config, "unknown shell %q", c.Shell)
		if near := errs.Nearest(c.Shell, shells); near != "" {
			return e.Try("did you mean %q?", near)
		}
		return e.Try("the choices are %s", strings.Join(shells, ", "))
	}
	_, err := fmt.Fprint(con.out, script)
	return err
}

// completeCmd is what the scripts run.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"The words of the command line after stoker, up to the one to be completed."`
}

func (c completeCmd) Run(con *console, parsed *kong.Context) error {
	for _, w := range complete(parsed.Model, c.Words) {
		if _, err := fmt.Fprintln(con.out, w); err != nil {
			return err
		}
	}
	return nil
}

// wantFiles asks the shell for files.
const wantFiles = ":files"

// complete lists what the last word may become.
func complete(app *kong.Application, words []string) (out []string) {
	words = joined(words)
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	offer := func(word, help string) {
		if strings.HasPrefix(word, last) {
			out = append(out, word+"\t"+strings.TrimSuffix(help, "."))
		}
	}
	verbs := func() {
		for _, n := range app.Children {
			if !n.Hidden {
				offer(n.Name, n.Help)
			}
		}
	}
	if len(words) == 1 {
		verbs()
		offer("help", "Show the help of a verb.")
		if strings.HasPrefix(last, "-") {
			offer("--help", "Show help.")
		}
		return out
	}
	if words[0] == "help" {
		verbs()
		return out
	}
	i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == words[0] })
	if i < 0 || slices.Contains(words[:len(words)-1], "--") {
		return []string{wantFiles}
	}
	verb := app.Children[i]
	flags := slices.Concat(app.Flags, verb.Flags)
	named := func(name string) *kong.Flag {
		at := slices.IndexFunc(flags, func(f *kong.Flag) bool {
			return name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short)
		})
		if at < 0 || flags[at].IsBool() || flags[at].IsCounter() {
			return nil
		}
		return flags[at]
	}
	if name, value, given := strings.Cut(last, "="); given && strings.HasPrefix(name, "--") {
		if f := named(name); f != nil {
			return values(f.Tag, name+"=", value)
		}
		return nil
	}
	if f := named(words[len(words)-2]); f != nil {
		return values(f.Tag, "", last)
	}
	if strings.HasPrefix(last, "-") {
		for _, f := range flags {
			if !f.Hidden {
				offer("--"+f.Name, f.Help)
			}
		}
		return out
	}
	if len(verb.Positional) > 0 {
		return values(verb.Positional[0].Tag, "", last)
	}
	return nil
}

// choices are those of a flag or an argument; none if it has no list of them.
func choices(tag *kong.Tag) (out []string) {
	switch list := tag.Get("choices"); list {
	case "":
		return nil
	case "*formats":
		for _, f := range dataset.Formats() {
			if !f.Made {
				out = append(out, f.Name)
			}
		}
		return out
	default:
		return strings.Split(list, ",")
	}
}

// values are the choices of a flag or an argument, or files if it has no list of them.
func values(tag *kong.Tag, before, given string) (out []string) {
	all := choices(tag)
	if all == nil {
		return []string{wantFiles}
	}
	for _, c := range all {
		if strings.HasPrefix(c, given) {
			out = append(out, before+c+"\t")
		}
	}
	return out
}

// joined are words without the "=" between a flag and its value: bash makes three words
// of them.
func joined(words []string) (out []string) {
	for i, w := range words {
		flag := len(out) > 0 && strings.HasPrefix(out[len(out)-1], "--") && !strings.Contains(out[len(out)-1], "=")
		if w != "=" || !flag {
			out = append(out, w)
		} else if i == len(words)-1 {
			out = append(out, "")
		}
	}
	return out
}
