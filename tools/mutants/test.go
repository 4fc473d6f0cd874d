package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// pkg is what `go list` says of a package.
type pkg struct {
	Dir, ImportPath, Name              string
	GoFiles, CgoFiles                  []string
	TestGoFiles, XTestGoFiles          []string
	Imports, TestImports, XTestImports []string
	Deps                               []string
	Module                             struct{ Path, Dir string }

	found func() []*site
}

// harness are packages that only tests use, and examples.
var harness = []string{"internal/stagetest", "harness/", "examples/", "bench/", "testdata/"}

func (p *pkg) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

func (p *pkg) mutable() bool {
	return !slices.ContainsFunc(harness, func(h string) bool { return strings.HasPrefix(p.rel()+"/", h) })
}

func (p *pkg) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

func (p *pkg) sites() []*site { return p.found() }

func (p *pkg) depends(path string) bool {
	return slices.Contains(p.Deps, path) || slices.Contains(p.TestImports, path) || slices.Contains(p.XTestImports, path)
}

func load() (map[string]*pkg, error) {
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	packages := map[string]*pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		p := new(pkg)
		if err := d.Decode(p); err != nil {
			return nil, err
		}
		p.found = sync.OnceValue(func() []*site {
			var all []*site
			for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
				sites, err := find(p, name)
				if err != nil {
					fmt.Fprintln(os.Stderr, "mutants:", err)
				}
				all = append(all, sites...)
			}
			return all
		})
		packages[p.ImportPath] = p
	}
	return packages, nil
}

// importers bounds how many packages that import one are asked.
const importers = 4

// testers are the packages whose tests are run until some cover the change: its own,
// those that import it (smallest first), and those that use everything.
func (r *runner) testers(p *pkg) []*pkg {
	var direct, whole []*pkg
	for _, rel := range []string{"/internal/loader", "", "/cmd/stoker"} {
		if t := r.packages[p.Module.Path+rel]; t != p && t.depends(p.ImportPath) {
			whole = append(whole, t)
		}
	}
	for _, t := range r.packages {
		switch {
		case t == p || !t.tested() || !t.depends(p.ImportPath) || slices.Contains(whole, t):
		case slices.Contains(slices.Concat(t.Imports, t.TestImports, t.XTestImports), p.ImportPath):
			direct = append(direct, t)
		}
	}
	slices.SortFunc(direct, func(a, b *pkg) int {
		if d := len(a.Deps) - len(b.Deps); d != 0 {
			return d
		}
		return strings.Compare(a.ImportPath, b.ImportPath)
	})
	list := append(direct[:min(len(direct), importers)], whole...)
	if p.tested() {
		list = slices.Insert(list, 0, p)
	}
	return list
}

// test runs the tests with the change; ok is false if it does not compile.
func (r *runner) test(s *site, result *Result) (ok bool, err error) {
	data, err := s.apply()
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp(r.dir, "one")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	changed, overlay := filepath.Join(dir, filepath.Base(s.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, data, 0o644); err != nil {
		return false, err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(s.pkg.Dir, filepath.Base(s.file)): changed}})
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return false, err
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", os.DevNull, s.pkg.ImportPath).CombinedOutput(); err != nil {
		if !bytes.Contains(out, []byte(filepath.Base(s.file))) {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return false, nil
	}
	for _, t := range r.testers(s.pkg) {
		args := []string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-short", "-timeout", "20m"}
		if s.race {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, t.ImportPath)...).CombinedOutput()
		if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
			return false, fmt.Errorf("%s: %s", t.ImportPath, out)
		}
		if err != nil {
			result.Outcome, result.By, result.Covered = "caught", cmp.Or(t.rel(), ".")+" "+failed(out), true
			return true, nil
		}
		result.By = strings.TrimSpace(result.By + " " + cmp.Or(t.rel(), "."))
		if result.Covered = covered(r.profile(t, s.pkg), s); result.Covered {
			break // they run the line, and notice nothing
		}
	}
	result.Outcome = "survived"
	return true, nil
}

// profile is what the tests of t cover of p as it is: the go command writes no profile
// of files that come from an overlay, but of those that they replace.
func (r *runner) profile(t, p *pkg) string {
	r.mu.Lock()
	once, ok := r.profiles[[2]string{t.ImportPath, p.ImportPath}]
	if !ok {
		once = sync.OnceValue(func() string {
			f, err := os.CreateTemp(r.dir, "cover")
			if err != nil {
				return ""
			}
			_ = f.Close()
			args := []string{"test", "-vet=off", "-short", "-timeout", "20m", "-coverpkg", p.ImportPath, "-coverprofile", f.Name(), t.ImportPath}
			if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "mutants: %s fails without a change: %v\n%s", t.ImportPath, err, out)
			}
			return f.Name()
		})
		r.profiles[[2]string{t.ImportPath, p.ImportPath}] = once
	}
	r.mu.Unlock()
	return once()
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)|^(panic: test timed out)|^(WARNING: DATA RACE)`)

// failed is the first test that failed, for the reader.
func failed(out []byte) string {
	m := failure.FindSubmatch(out)
	if m == nil {
		return "ended"
	}
	return string(bytes.Join(m[1:], nil))
}

var block = regexp.MustCompile(`^(.*):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)

// covered says whether a profile has the site as run.
func covered(profile string, s *site) bool {
	f, err := os.Open(profile)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := block.FindStringSubmatch(lines.Text())
		if m == nil || m[6] == "0" || !strings.HasSuffix(m[1], s.file) {
			continue
		}
		var at [4]int
		for i := range at {
			at[i], _ = strconv.Atoi(m[2+i])
		}
		if (s.line > at[0] || s.line == at[0] && s.col >= at[1]) && (s.line < at[2] || s.line == at[2] && s.col <= at[3]) {
			return true
		}
	}
	return false
}
