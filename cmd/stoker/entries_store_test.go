package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/facts"
	"github.com/stoker-data/stoker/internal/tool/learn"
	"github.com/stoker-data/stoker/testdata/photos"
)

// learnAhead runs stoker index --entries and returns what it says.
func learnAhead(t *testing.T, root string) (report learn.Report, failed result) {
	t.Helper()
	got := command(t, "index", root, "--entries", "--json")
	if got.status != 0 {
		return report, got
	}
	var said struct{ Entries learn.Report }
	if err := json.Unmarshal([]byte(got.out), &said); err != nil {
		t.Fatal(err)
	}
	return said.Entries, got
}

// sealedIn are the files of a store of entry points.
func sealedIn(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "entries-*.facts"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// stoker index --entries learns all there is, once, and ends with an error if what it was
// asked for by name cannot be.
func TestEntriesAskedForByName(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("STOKER_CACHE", cache)
	root := folder(t, 4)
	first, got := learnAhead(t, root)
	if first.Pictures != 12 || first.Learned != 12 || first.Bad != 0 || first.Bytes == 0 || len(sealedIn(t, first.Folder)) != 1 {
		t.Fatalf("%+v, %s", first, got.err)
	}
	again, got := learnAhead(t, root)
	if again.Pictures != 12 || again.Learned != 12 || len(sealedIn(t, first.Folder)) != 1 {
		t.Errorf("again: %+v, %s", again, got.err)
	}
	path := sealedIn(t, first.Folder)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	later := append([]byte(nil), whole...)
	later[8] = 9
	refused := func(what string, code errs.Code, part string) {
		t.Helper()
		_, got := learnAhead(t, root)
		if got.status != errs.Classes[code].Exit || !strings.Contains(got.err, part) {
			t.Errorf("%s: status %d, %s", what, got.status, got.err)
		}
	}
	for _, c := range []struct {
		what string
		raw  []byte
		code errs.Code
		part string
	}{
		{"of a later version", later, errs.Incompatible, "later version"},
		{"cut", whole[:len(whole)/2], errs.Damaged, path},
		{"of something else", []byte(strings.Repeat("else", 100)), errs.Damaged, "not a file of facts"},
	} {
		write(t, path, c.raw)
		refused(c.what, c.code, c.part)
		if now, err := os.ReadFile(path); err != nil || string(now) != string(c.raw) {
			t.Errorf("%s: it was touched: %v", c.what, err)
		}
	}
	if err := os.RemoveAll(first.Folder); err != nil {
		t.Fatal(err)
	}
	write(t, first.Folder, []byte("a file in its place"))
	refused("a file in the place of the folder", errs.Unreadable, first.Folder)
	if err := os.Remove(first.Folder); err != nil {
		t.Fatal(err)
	}
	if last, got := learnAhead(t, root); last.Learned != 12 || len(sealedIn(t, first.Folder)) != 1 {
		t.Errorf("%+v, %s", last, got.err)
	}
	t.Setenv("STOKER_CACHE", filepath.Join(root, "chelsea", "00.jpg"))
	refused("no cache folder", errs.Config, "STOKER_CACHE")
}

// A full disk is an error of stoker index --entries, and leaves nothing unfinished.
func TestEntriesOnAFullDisk(t *testing.T) {
	cache := t.TempDir()
	if err := syscall.Mount("tmpfs", cache, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(cache, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	t.Setenv("STOKER_CACHE", cache)
	root := folder(t, 2)
	if got := command(t, "index", root); got.status != 0 {
		t.Fatal(got.err)
	}
	fill, err := os.Create(filepath.Join(cache, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	_, got := learnAhead(t, root)
	if got.status != errs.Classes[errs.Space].Exit || !strings.Contains(got.err, "free some space there") {
		t.Errorf("status %d, %s", got.status, got.err)
	}
	if err := errors.Join(fill.Close(), os.Remove(fill.Name())); err != nil {
		t.Fatal(err)
	}
	report, got := learnAhead(t, root)
	if left, err := os.ReadDir(report.Folder); err != nil || report.Learned != 6 || len(left) != 1 {
		t.Errorf("with room again: %+v, %q, %v, %s", report, left, err, got.err)
	}
}

// A store that is full of what was learned of files that are not there any more makes room.
func TestEntriesInAFullStore(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	root := folder(t, 2)
	first, _ := learnAhead(t, root)
	old, err := facts.Open(first.Folder, "entries", facts.Options{Limit: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		old.Put(facts.Key{File: uint64(i) * 0x9e3779b97f4a7c15, Offset: i}, make([]byte, facts.MaxFact*9/10))
		if err := old.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "rocket", "new.jpg"), photo(t))
	if again, got := learnAhead(t, root); again.Learned != 7 || again.Bytes > 1<<20 {
		t.Errorf("%+v, %s", again, got.err)
	}
}

func photo(t *testing.T) []byte {
	t.Helper()
	raw, err := photos.Files.ReadFile("rocket.jpg")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// asOther runs the command as a user who is not root.
func asOther(t *testing.T, dir, cache string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "stoker"), args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "HOME="+dir, "STOKER_CACHE="+cache)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// In a cache folder of another user, or one's own that is read-only, a loader works, and leaves
// nothing there; stoker index --entries fails, and says what to do.
func TestEntriesInFoldersThatAreNotOurs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	dir, err := os.MkdirTemp("", "stoker-other-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err == nil {
		var b []byte
		if b, err = os.ReadFile(self); err == nil {
			err = errors.Join(os.WriteFile(filepath.Join(dir, "stoker"), b, 0o755), os.Chmod(dir, 0o755))
		}
	}
	root, cache := filepath.Join(dir, "data"), filepath.Join(dir, "cache")
	if err = errors.Join(err, os.CopyFS(root, os.DirFS(folder(t, 2)))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STOKER_CACHE", cache)
	report, got := learnAhead(t, root)
	if report.Learned != 6 {
		t.Fatalf("%+v, %s", report, got.err)
	}
	modes := func(folders, files os.FileMode, owner int) {
		t.Helper()
		err := filepath.WalkDir(cache, func(path string, d os.DirEntry, err error) error {
			mode := files
			if d.IsDir() {
				mode = folders
			}
			return errors.Join(err, os.Chmod(path, mode), os.Chown(path, owner, owner))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bench := []string{"bench", root, "--image-size", "32", "--epochs", "2", "--batch-size", "4", "--workers", "1"}
	for what, c := range map[string]struct {
		folders, files os.FileMode
		owner          int
		says           string
	}{
		"of another user":                        {0o755, 0o644, 0, "another user"},
		"of another user, files closed":          {0o755, 0o600, 0, "permission denied"},
		"of another user, all of it closed":      {0o700, 0o600, 0, "permission denied"},
		"one's own, read-only":                   {0o555, 0o444, 65534, "permission denied"},
		"of another user, who lets others write": {0o777, 0o666, 0, "another user"},
	} {
		modes(c.folders, c.files, c.owner)
		before := strings.Join(sealedIn(t, report.Folder), " ")
		if out, err := asOther(t, dir, cache, bench...); err != nil {
			t.Errorf("%s: %v, %s", what, err, out)
		}
		out, err := asOther(t, dir, cache, "index", root, "--entries")
		if err == nil || !strings.Contains(out, c.says) || !strings.Contains(out, "try: set STOKER_CACHE") {
			t.Errorf("%s: %v, %s", what, err, out)
		}
		if now := strings.Join(sealedIn(t, report.Folder), " "); now != before {
			t.Errorf("%s: %s, and then %s", what, before, now)
		}
	}
}
