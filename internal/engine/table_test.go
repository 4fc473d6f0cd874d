package engine

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// Columns of a dataset come in shared memory of their own, which nobody can change
// the size of; what is not a column, or not a loader, is answered with an error.
func TestColumnsInSharedMemory(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	opened := c.open(folder(t, 10))
	for range 2 { // the engine frees its side of the first
		table := c.ask(&wire.Message{Type: wire.TypeTable, Loader: opened.Loader, Columns: []string{"label"}})
		if table.Type != wire.TypeTable || table.Bytes == 0 || len(c.fds) != 1 {
			t.Fatalf("table is %+v, %+v, with %d descriptors", table, table.Error, len(c.fds))
		}
		checkSeals(t, c.fds[0])
		mem, err := unix.Mmap(c.fds[0], 0, int(table.Bytes), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(c.fds[0])
		c.fds = nil
		var columns map[string][]int
		if err := json.Unmarshal(mem, &columns); err != nil {
			t.Fatalf("%q: %v", mem, err)
		}
		if want := []int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}; len(columns) != 1 || !slices.Equal(columns["label"], want) {
			t.Errorf("columns are %v", columns)
		}
		_ = unix.Munmap(mem)
	}
	for _, m := range []wire.Message{
		{Type: wire.TypeTable, Loader: opened.Loader, Columns: []string{"colour"}},
		{Type: wire.TypeTable, Loader: 99, Columns: []string{"label"}},
	} {
		if e := c.ask(&m); e.Error == nil || e.Error.Code != errs.Config || len(c.fds) != 0 {
			t.Errorf("%v of loader %d: %+v", m.Columns, m.Loader, e)
		}
	}
}
