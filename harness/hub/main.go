// Command hub serves the files of a folder as a dataset of the Hugging Face Hub, for tests
// that are not written in Go: the server is that of package hubserver. It prints one line
// of JSON when it serves:
//
//	{"url": "http://127.0.0.1:40001", "storage": "http://127.0.0.1:40002"}
//
// and ends when its standard input does. With HUB_TOKEN set, the dataset is private, and
// that token may read it. The status is 1 if a client has done what none may do, such as
// sending the token to the storage.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stoker-data/stoker/internal/stagetest/hubserver"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: hub FOLDER OWNER/NAME")
		os.Exit(2)
	}
	told := &complaints{}
	if err := serve(told, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "hub:", err)
		os.Exit(1)
	}
	if told.any.Load() {
		os.Exit(1)
	}
}

func serve(told *complaints, folder, id string) error {
	files := map[string][]byte{}
	below := os.DirFS(folder)
	err := fs.WalkDir(below, ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files[name], err = fs.ReadFile(below, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	s := hubserver.New(told)
	s.Commit(id, "main", files)
	if token := os.Getenv("HUB_TOKEN"); token != "" {
		s.Private(id)
		s.Allow(token, id)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": s.URL, "storage": s.Storage}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// complaints is a test that is a process: what it is told of goes to standard error.
type complaints struct {
	testing.TB
	any atomic.Bool
}

// Errorf is testing.TB's.
func (c *complaints) Errorf(format string, args ...any) {
	c.any.Store(true)
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Cleanup is testing.TB's: the servers end with the process.
func (c *complaints) Cleanup(func()) {}
