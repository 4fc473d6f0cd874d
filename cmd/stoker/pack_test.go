package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-data/stoker/testdata/photos"
)

// filesOf are all files below a folder.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

// Killed at random instants, as SIGKILL does, and run again: what has a shard's
// name is whole at every instant, and in the end the bytes are those of an
// undisturbed run. STOKER_KILLS sets how many instants there are.
func TestPackIsKilled(t *testing.T) {
	kills := 8
	if n, err := strconv.Atoi(os.Getenv("STOKER_KILLS")); err == nil {
		kills = n
	}
	root := t.TempDir()
	for i := range 400 {
		write(t, filepath.Join(root, fmt.Sprintf("c%d/%d.jpg", i%4, i)), []byte(strings.Repeat(strconv.Itoa(i), 200)))
	}
	args := func(dst string) []string {
		return []string{"pack", root, dst, "--shard-size", "16KiB", "--shuffle", "--compress", "zstd"}
	}
	whole := t.TempDir()
	begin := time.Now()
	if r := command(t, args(whole)...); r.status != 0 {
		t.Fatal(r.err)
	}
	took := time.Since(begin)
	want := filesOf(t, whole)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d, %v undisturbed", seed, took)
	killed := 0
	for range kills {
		dst := filepath.Join(t.TempDir(), "dst")
		for range 2 {
			c := exec.Command(os.Args[0], args(dst)...)
			c.Env = append(os.Environ(), asCommand+"=1")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(random.Float64() * float64(took)))
			_ = c.Process.Kill()
			if err := c.Wait(); err != nil {
				killed++
			}
			for name, body := range filesOf(t, dst) {
				if !strings.HasPrefix(name, ".pack/") && want[name] != body {
					t.Fatalf("%s is there and is not whole", name)
				}
			}
		}
		if r := command(t, args(dst)...); r.status != 0 {
			t.Fatal(r.err)
		}
		if got := filesOf(t, dst); !maps.Equal(got, want) {
			t.Fatal("the bytes are not those of an undisturbed run")
		}
	}
	if killed == 0 {
		t.Error("nothing was killed before it was done")
	}
}

func TestPackCommand(t *testing.T) {
	src := folder(t, 4)
	dst := filepath.Join(t.TempDir(), "packed")
	for _, part := range []string{"0/2", "1/2"} {
		if r := command(t, "pack", src, dst, "--task", part, "--shard-size", "200KiB"); r.status != 0 || !strings.Contains(r.out, "part "+part) {
			t.Errorf("%+v", r)
		}
		if part == "0/2" {
			if r := command(t, "pack", "--finish", dst); r.status != 4 || !strings.Contains(r.err, "are not finished: shard-") {
				t.Errorf("%+v", r)
			}
		}
	}
	if r := command(t, "pack", "--finish", dst); r.status != 0 || !strings.Contains(r.out, "12 samples") {
		t.Errorf("%+v", r)
	}
	if r := command(t, "inspect", dst, "--all", "--json"); r.status != 0 || !strings.Contains(r.out, `"damaged": 0`) || !strings.Contains(r.out, `"samples": 12`) {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		args, what string
		status     int
	}{
		{"pack " + src, "a dataset and a folder", 2},
		{"pack " + src + " " + dst + " --resize 100", "resize (not set there, 100 now)", 2},
		{"pack " + src + " " + dst + " --task 2/2", "but must be PART/PARTS", 2},
		{"pack " + src + " " + dst + " --output zip", "unknown output", 2},
		{"pack " + src + " " + dst + " --shard-size big", "--shard-size", 2},
		{"pack " + src + " " + dst + " --shard-size 0", "--shard-size is 0", 2},
		{"pack " + src + " " + src, "into itself", 2},
		{"pack " + src + "/nothing " + dst, "there is no", 2},
	} {
		if r := command(t, strings.Fields(c.args)...); r.status != c.status || !strings.Contains(r.err, c.what) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	table := filepath.Join(src, "table.csv")
	write(t, table, []byte("where,n\ncoffee/00.jpg,1\nrocket/01.jpg,2\n"))
	for args, what := range map[string]string{"": "note: the rows of the table", " --path-column where": "2 samples in 1 shard"} {
		if r := command(t, strings.Fields("pack "+table+" "+filepath.Join(t.TempDir(), "packed")+args)...); r.status != 0 || !strings.Contains(r.out, what) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// Stopped by a signal, it says how far it is and how it goes on, and ends with the
// signal's status.
func TestPackIsStopped(t *testing.T) {
	src := folder(t, 2)
	says := regexp.MustCompile(`^stoker: interrupted: ([\d,]+) of ([\d,]+) shards are finished; (.*) continues after them\n$`)
	for signal, c := range map[syscall.Signal]struct {
		flags []string
		again string
	}{
		syscall.SIGINT:  {nil, "the same command"},
		syscall.SIGTERM: {[]string{"--overwrite"}, "the same command without --overwrite"},
	} {
		dst := filepath.Join(t.TempDir(), "dst")
		args := append([]string{"pack", src, dst, "--resize", "48", "--augment", "20000", "--shard-size", "16KiB", "--jobs", "1"}, c.flags...)
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for begun := false; !begun; time.Sleep(10 * time.Millisecond) {
			_, err := os.Stat(filepath.Join(dst, ".pack", "000000.json")) // the first shard is finished
			begun = err == nil
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(signal) {
			t.Errorf("%v: %v", signal, err)
		}
		said := says.FindStringSubmatch(errOut.String())
		if said == nil || said[3] != c.again || out.String() != "" {
			t.Fatalf("%v: %q, %q", signal, out.String(), errOut.String())
		}
		notes, _ := filepath.Glob(filepath.Join(dst, ".pack", "??????.json"))
		if done, err := strconv.Atoi(strings.ReplaceAll(said[1], ",", "")); err != nil || done < 1 || done > len(notes) {
			t.Errorf("%s, and there are notes of %d shards", said[0], len(notes))
		}
	}
}

// Flags may be before, between and after the paths, and an empty size is
// an error.
func TestFlagsAnywhere(t *testing.T) {
	dir := t.TempDir()
	table := filepath.Join(dir, "t.csv")
	write(t, table, []byte("x,y\n1,2\n3,4\n"))
	for i, args := range [][]string{
		{"--output", "npy", table, "DST"},
		{table, "--output", "npy", "DST"},
		{table, "DST", "--output=npy"},
		{table, "--shuffle", "DST", "--output", "npy"},
		{"--output", "npy", "--", table, "DST"},
	} {
		dst := filepath.Join(dir, string(rune('a'+i)))
		args[slices.Index(args, "DST")] = dst
		if r := command(t, append([]string{"pack"}, args...)...); r.status != 0 {
			t.Errorf("%v: %s", args, r.err)
		}
		if _, err := os.Stat(filepath.Join(dst, "x-000000.npy")); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, flag := range []string{"--resize", "--crop", "--quality", "--augment"} {
		if r := command(t, "pack", table, flag, "0", filepath.Join(dir, "none")); r.status != 2 || !strings.Contains(r.err, flag+" 0 has no meaning") {
			t.Errorf("%s: %d, %s", flag, r.status, r.err)
		}
	}
	if r := command(t, "pack", table, "--bogus", dir); r.status != 2 || !strings.Contains(r.err, "unknown flag --bogus") {
		t.Errorf("%d, %s", r.status, r.err)
	}
}

// A picture that cannot be read ends the packing with status 3 and its name, or is
// left out and named, if that was asked for.
func TestPackOnBad(t *testing.T) {
	raw, err := photos.Files.ReadFile("coffee.jpg")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for i := range 3 {
		write(t, filepath.Join(root, "c", strconv.Itoa(i)+".jpg"), raw)
	}
	write(t, filepath.Join(root, "c", "1.jpg"), raw[:len(raw)/2])
	dst := filepath.Join(t.TempDir(), "packed")
	r := command(t, "pack", root, dst, "--resize", "5000")
	if r.status != 3 || !strings.Contains(r.err, "c/1.jpg") || !strings.Contains(r.err, "sample 1") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	r = command(t, "pack", root, dst, "--resize", "5000", "--on-bad", "skip", "--dry-run")
	if r.status != 0 || !strings.HasPrefix(r.out, dst+": 2 samples in about 1 shard") || !strings.HasSuffix(r.out, "1 sample would be left out: every sample was tried\n") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	r = command(t, "pack", root, dst, "--resize", "5000", "--on-bad", "skip")
	if r.status != 0 || !strings.Contains(r.err, "left out: sample 1 (c/1.jpg): ") || !strings.Contains(r.out, "1 sample was left out") || !strings.Contains(r.out, "2 samples in 1 shard") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	if manifest := filesOf(t, dst)["manifest.json"]; !strings.Contains(manifest, `"file": "c/1.jpg"`) {
		t.Error(manifest)
	}
	if r = command(t, "verify", dst); r.status != 0 {
		t.Errorf("the packing: status %d: %s", r.status, r.out)
	}
	if r = command(t, "pack", root, dst, "--on-bad", "replace"); r.status != 2 || !strings.Contains(r.err, "--on-bad must be one of fail, skip") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}
