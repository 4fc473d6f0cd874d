package pattern

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Names of data that other tools accept and stoker does not, and what to write
// instead: commands of WebDataset's, chains of fsspec's. Schemes are for the source of all
// names.

// notNames refuses what looks like a name, and is a command or a chain of names.
func notNames(pattern string) error {
	if command, ok := strings.CutPrefix(pattern, "pipe:"); ok {
		return piped(command)
	}
	if strings.HasPrefix(pattern, "dbfs:/") {
		return errs.New(errs.Config, "%s is a path in Databricks, not on this machine", strconv.Quote(pattern)).
			Try("give the path under which Databricks mounts it: %s", strconv.Quote("/dbfs/"+strings.TrimLeft(strings.TrimPrefix(pattern, "dbfs:"), "/")))
	}
	if first, rest, ok := strings.Cut(pattern, "::"); ok {
		return chained(first, rest)
	}
	return nil
}

// caches are fsspec's words for keeping a copy, and archives those for a file in one.
var (
	caches   = []string{"simplecache", "filecache", "blockcache", "cached", "cache", "dircache", "cachingfilesystem"}
	archives = []string{"zip", "tar", "libarchive", "reference", "dir", "git", "memory", "asyncwrapper", "generic"}
)

// chained refuses a chain of fsspec's; nil: it is not one.
func chained(first, rest string) error {
	word := source.SchemeOf(first)
	if word == "" {
		word = first
	}
	cache := slices.Contains(caches, word)
	if !cache && !slices.Contains(archives, word) {
		return nil
	}
	e := errs.New(errs.Config, "%s:: is the beginning of a chained URL of fsspec, which stoker does not read", word)
	last := rest[strings.LastIndex(rest, "::")+len("::"):]
	if !strings.Contains(rest, "::") {
		last = rest
	}
	switch {
	case cache && strings.Contains(rest, "::") && chained(cutFirst(rest)) != nil:
		return chained(cutFirst(rest))
	case source.Shown(last) != last:
		return e.Try("give only the URL after the last ::")
	case cache:
		return e.Try("give only the URL, which is read in place: %s", strconv.Quote(last))
	case word == "tar":
		return e.Try("give the archive, whose members are the samples: %s", strconv.Quote(last))
	case word == "zip" || word == "libarchive":
		return e.Try("unpack %s beside it and give the folder, or write its files as tar shards (stoker pack)", strconv.Quote(last))
	}
	return e.Try("give the name of the data itself, such as %s", strconv.Quote(last))
}

func cutFirst(s string) (first, rest string) {
	first, rest, _ = strings.Cut(s, "::")
	return first, rest
}

// piped refuses a command of WebDataset's, and finds in it the name of what it reads. The
// command is not repeated: it may have keys, tokens and headers.
func piped(command string) error {
	words := shellWords(command)
	program := "pipe"
	if len(words) > 0 {
		program = path.Base(words[0])
		if strings.Contains(program, "=") { // a variable that is set for the command
			program = "..."
		}
	}
	e := errs.New(errs.Config, "pipe:%s is a command, and stoker does not run commands: it reads files and stores itself", program)
	name, also := readBy(command, words)
	switch {
	case name == "":
		return e.Try("copy or mount the data, and give its path")
	case source.Shown(name) != name:
		return e.Try("give the URL that is in the command%s", also)
	case source.SchemeOf(name) == "":
		return e.Try("give the path: %s", strconv.Quote(name))
	}
	return e.Try("give the URL: %s%s", strconv.Quote(name), also)
}

// unpackers are commands after a | that stoker does not need: it reads compressed shards.
var unpackers = []string{"gunzip", "gzip", "zcat", "pigz", "unpigz", "zstd", "zstdcat", "unzstd", "lz4", "lz4cat", "unlz4"}

// readBy is the name of the only thing that a command reads, and what else its options
// ask for; "": it is not clear.
func readBy(command string, words []string) (name, also string) {
	rest := []string(nil)
	if at := slices.IndexFunc(words, func(w string) bool { return w == "|" || w == "||" || w == ";" || w == "&&" }); at >= 0 {
		words, rest = words[:at], words[at:]
	}
	if len(words) < 2 || strings.ContainsAny(command, "`><$") {
		return "", ""
	}
	for i, w := range words[1:] {
		key, value, inside := strings.Cut(w, "=")
		if !inside && i+2 < len(words) {
			value = words[i+2]
		}
		switch key {
		case "--endpoint-url", "--endpoint_url", "--host":
			also += ", with endpoint_url in dataset.storage: " + source.Shown(value)
		case "--profile":
			also += ", with profile in dataset.storage: " + value
		case "--region":
			also += ", with region in dataset.storage: " + value
		case "--no-sign-request":
			also += ", with anonymous in dataset.storage: true"
		case "--request-payer", "--requester-pays":
			also += ", with requester_pays in dataset.storage: true"
		case "-H", "--header":
			also += "; export the token and give the name of its variable as token_env in dataset.storage"
		case "-u", "--user", "-n", "--netrc":
			also += "; put the user and the password into ~/.netrc"
		}
	}
	switch path.Base(words[0]) {
	case "cat":
		if len(words) == 2 {
			name = words[1]
		}
	default:
		var found []string
		for i, w := range words[1:] {
			if before := words[i]; source.SchemeOf(w) != "" && !slices.Contains([]string{"--endpoint-url", "--endpoint_url", "--host", "-H", "--header", "-e", "--referer", "-x", "--proxy", "-A"}, before) {
				found = append(found, w)
			}
		}
		if len(found) == 1 {
			name = found[0]
		}
	}
	if len(rest) > 0 && rest[0] == "|" {
		packed := slices.Contains([]string{".gz", ".tgz", ".zst", ".zstd", ".lz4"}, path.Ext(name))
		if len(rest) < 2 || !packed || !slices.Contains(unpackers, path.Base(rest[1])) || slices.Contains(rest[1:], "|") {
			return "", ""
		}
	}
	return name, also
}

// shellWords splits a command as a shell does, but runs and substitutes nothing.
func shellWords(command string) (words []string) {
	var word strings.Builder
	var quoted rune
	any := false
	end := func() {
		if any {
			words = append(words, word.String())
		}
		word.Reset()
		any = false
	}
	runes := []rune(command)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case quoted != 0:
			if r == quoted {
				quoted = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quoted, any = r, true
		case r == '\\' && i+1 < len(runes):
			i++
			word.WriteRune(runes[i])
			any = true
		case r == ' ' || r == '\t' || r == '\n':
			end()
		case (r == '|' || r == '&') && i+1 < len(runes) && runes[i+1] == r:
			end()
			words = append(words, string([]rune{r, r}))
			i++
		case r == '|' || r == ';':
			end()
			words = append(words, string(r))
		default:
			word.WriteRune(r)
			any = true
		}
	}
	end()
	return words
}

// bucketless refuses a name without a bucket, which would stand for all of them, and a
// pattern in a bucket's name: most accounts cannot list their buckets.
func (x expander) bucketless(pattern string) error {
	if !source.Keyed(pattern) {
		return nil
	}
	if err := notNames(pattern); err != nil {
		return err
	}
	names := []string{pattern}
	if strings.Contains(bucketOf(pattern), "{") {
		var err error
		if names, err = source.Braces(pattern); err != nil {
			return err
		}
	}
	for _, name := range names {
		prefix, _ := source.CutScheme(name)
		bucket, query, asked := strings.Cut(bucketOf(name), "?")
		switch signed := strings.Contains(query, "="); {
		case bucket == "" && !asked:
			return errs.New(errs.Config, "%s does not name a bucket", strconv.Quote(source.Shown(name))).
				Try("write %sBUCKET/PATH%s", prefix, x.buckets(prefix))
		case hasGlob(bucket), asked && !signed:
			return errs.New(errs.Config, "%s has a pattern in the name of the bucket, where none is allowed", strconv.Quote(source.Shown(name))).
				Try("name each bucket, or put their names into braces: %s{ONE,TWO}/PATH", prefix)
		}
	}
	return nil
}

func bucketOf(name string) string {
	_, rest := source.CutScheme(name)
	bucket, _, _ := strings.Cut(rest, "/")
	return bucket
}

// bucketsFor is how long an error waits for the names of buckets.
const bucketsFor = 2 * time.Second

// buckets names some of the buckets; "" if they cannot be listed in time.
func (x expander) buckets(prefix string) string {
	ctx, cancel := context.WithTimeout(x.ctx, bucketsFor)
	defer cancel()
	all, err := source.Names(ctx, x.src, prefix)
	if err != nil || len(all) == 0 {
		return ""
	}
	var names []string
	for _, it := range all[:min(len(all), 5)] {
		names = append(names, errs.Name(it.Base()))
	}
	if len(all) > len(names) {
		names = append(names, "...")
	}
	return "; the buckets are " + strings.Join(names, ", ")
}
