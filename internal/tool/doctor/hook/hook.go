// Package hook holds the Python files that watch an unchanged training script
// from within, and puts them where a Python finds them.
//
// The files are a sitecustomize and its modules: Python runs them at its start
// when their folder leads PYTHONPATH, and they write what they see of torch's
// DataLoader as lines of JSON, a file PID.jsonl for each process.
package hook

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed *.py
var files embed.FS

// OutVariable names the folder, in the environment of the script, that the
// hook writes to; without it the hook does nothing.
const OutVariable = "STOKER_DOCTOR_DIR"

// Write puts the hook's files into dir, which it makes where there is none.
func Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	entries, err := files.ReadDir(".")
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	for _, e := range entries {
		b, err := files.ReadFile(e.Name())
		if err != nil {
			return fmt.Errorf("hook: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o600); err != nil {
			return fmt.Errorf("hook: %w", err)
		}
	}
	return nil
}

// Env gives a copy of environ in which Python finds the hook in dir before all
// else, what PYTHONPATH named before stays after it, and the hook writes to
// out. Both become absolute: the script may change its folder.
func Env(dir, out string, environ []string) []string {
	path := absolute(dir)
	env := slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		if name == "PYTHONPATH" && value != "" {
			path = absolute(dir) + string(os.PathListSeparator) + value
		}
		return name == "PYTHONPATH" || name == OutVariable
	})
	return append(env, "PYTHONPATH="+path, OutVariable+"="+absolute(out))
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
