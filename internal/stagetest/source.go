// Package stagetest has the tests that every source and every format has to pass,
// and a source that fails on request. A new source or format is its own code and
// ten lines that call a suite here.
package stagetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Source checks a source against its contract. open stores these objects (names
// with slashes) and returns the source and the prefix of their names, which ends in
// a slash; write replaces the contents of one of them.
func Source(t *testing.T, open func(t *testing.T, objects map[string][]byte) (src source.Source, prefix string, write func(name string, data []byte))) {
	big := make([]byte, 1<<20+17)
	for i := range big {
		big[i] = byte(i*2654435761 + i>>11)
	}
	objects := map[string][]byte{"a/one": []byte("1"), "a/empty": {}, "a/b/deep": []byte("deep"), "big": big, "Z": []byte("capital"), "é": []byte("accent")}
	src, prefix, write := open(t, objects)
	ctx := context.Background()
	stat := func(t *testing.T, name string) source.Info {
		t.Helper()
		st, err := src.Stat(ctx, prefix+name)
		if err != nil {
			t.Fatalf("Stat(%s): %v", name, err)
		}
		return st
	}

	t.Run("stat", func(t *testing.T) {
		for name, data := range objects {
			if st := stat(t, name); st.Size != int64(len(data)) || st.Dir || st.Name != prefix+name {
				t.Errorf("Stat(%s) = %+v, want %d bytes", name, st, len(data))
			}
		}
		_, err := src.Stat(ctx, prefix+"nothing")
		wantCode(t, err, errs.NotFound, prefix+"nothing")
	})

	t.Run("read", func(t *testing.T) {
		for _, watched := range []bool{true, false} {
			for name, data := range objects {
				obj := stat(t, name)
				if !watched {
					obj.Version = ""
				}
				for _, r := range [][2]int{{0, len(data)}, {0, 0}, {len(data), 0}, {len(data) / 2, len(data) - len(data)/2}, {len(data) / 3, len(data) / 7}} {
					got := make([]byte, r[1])
					if err := src.ReadAt(ctx, obj, got, int64(r[0])); err != nil {
						t.Fatalf("%s: %d bytes at %d: %v", name, r[1], r[0], err)
					}
					if !bytes.Equal(got, data[r[0]:r[0]+r[1]]) {
						t.Fatalf("%s: %d bytes at %d are wrong", name, r[1], r[0])
					}
					if hot, ok := src.(source.Hot); ok {
						for _, wait := range []bool{true, false} {
							clear(got)
							at, err := hot.ReadHot(ctx, obj, got, int64(r[0]), wait)
							if err != nil {
								t.Fatalf("%s: %d bytes at %d, waiting %v: %v", name, r[1], r[0], wait, err)
							}
							if (at || wait) && !bytes.Equal(got, data[r[0]:r[0]+r[1]]) {
								t.Fatalf("%s: %d bytes at %d, waiting %v, are wrong", name, r[1], r[0], wait)
							}
						}
					}
				}
				for _, r := range [][2]int{{0, len(data) + 1}, {len(data), 1}, {len(data) + 1, 0}, {-1, 1}} {
					if err := src.ReadAt(ctx, obj, make([]byte, r[1]), int64(r[0])); err == nil {
						t.Errorf("%s: %d bytes at %d could be read of %d", name, r[1], r[0], len(data))
					}
				}
			}
		}
		err := src.ReadAt(ctx, source.Info{Name: prefix + "nothing", Size: 3}, make([]byte, 3), 0)
		wantCode(t, err, errs.NotFound, prefix+"nothing")
	})

	if hot, ok := src.(source.Hot); ok {
		t.Run("hot", func(t *testing.T) {
			for _, wait := range []bool{true, false} {
				_, err := hot.ReadHot(ctx, source.Info{Name: prefix + "nothing", Size: 3}, make([]byte, 3), 0, wait)
				wantCode(t, err, errs.NotFound, prefix+"nothing")
				for _, version := range []string{"", stat(t, "big").Version} {
					_, err = hot.ReadHot(ctx, source.Info{Name: prefix + "big", Size: 3, Version: version}, make([]byte, 3), 0, wait)
					wantCode(t, err, errs.Changed, prefix+"big")
				}
			}
			if _, err := hot.ReadHot(ctx, stat(t, "a/one"), make([]byte, 2), 0, true); err == nil {
				t.Error("two bytes could be read of one")
			}
		})
	}

	t.Run("names are not kept", func(t *testing.T) {
		for _, watched := range []bool{true, false} {
			for _, bad := range []string{"a/one", "nothing"} {
				buf := []byte(prefix + bad)
				obj := source.Info{Name: unsafe.String(&buf[0], len(buf)), Size: 1}
				if watched {
					obj.Version = stat(t, "a/one").Version
				}
				err := src.ReadAt(ctx, obj, make([]byte, 1), 0)
				copy(buf, strings.Repeat("x", len(buf)))
				if bad == "nothing" {
					wantCode(t, err, errs.NotFound, prefix+"nothing")
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
	})

	t.Run("list", func(t *testing.T) {
		for dir, want := range map[string][]string{"a": {"a/b", "a/empty", "a/one"}, "": {"Z", "a", "big", "é"}} {
			var got []string
			for st, err := range src.List(ctx, strings.TrimSuffix(prefix+dir, "/")) {
				if err != nil {
					t.Fatal(err)
				}
				name := strings.TrimPrefix(st.Name, prefix)
				if _, isObject := objects[name]; isObject == st.Dir || st.Size != int64(len(objects[name])) {
					t.Errorf("%s is listed as %+v", name, st)
				}
				// A folder that is listed is an answer for its objects: indexes are compared with it.
				if _, ok := src.(source.Namer); !ok && !st.Dir {
					if one := stat(t, name); one != st {
						t.Errorf("%s is listed as %+v, and Stat says %+v", name, st, one)
					}
				}
				got = append(got, name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q has %q, want %q", dir, got, want)
			}
		}
		n := 0
		for _, err := range src.List(ctx, prefix+"nothing") {
			wantCode(t, err, errs.NotFound, prefix+"nothing")
			n++
		}
		if n != 1 {
			t.Errorf("listing nothing gave %d answers", n)
		}
		for range src.List(ctx, prefix) {
			break // must not hang or leak
		}
	})

	t.Run("a part of a folder", func(t *testing.T) {
		if !source.Can(src, prefix+"a/o").Begin {
			return // whole folders are listed
		}
		for begin, want := range map[string]string{"a/o": "a/one", "a/": "a/b a/empty a/one", "b": "big", "a/b": "a/b", "a": "a", "a/x": "", "nothing/x": ""} {
			var got []string
			for st, err := range source.Begin(ctx, src, prefix+begin) {
				if err != nil {
					t.Fatalf("%q: %v", begin, err)
				}
				name := strings.TrimPrefix(st.Name, prefix)
				if one := stat(t, name); !st.Dir && one != st {
					t.Errorf("%s is listed as %+v, and Stat says %+v", name, st, one)
				}
				got = append(got, name)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("what begins with %q: %q, want %q", begin, got, want)
			}
		}
	})

	t.Run("the beginning of an object", func(t *testing.T) {
		for name, want := range map[string]string{"a/b/deep": "deep", "a/empty": "", "big": string(objects["big"][:10])} {
			p := make([]byte, 10)
			if n, err := source.Head(ctx, src, prefix+name, p); err != nil || string(p[:n]) != want {
				t.Errorf("%s begins with %q, %v; want %q", name, p[:n], err, want)
			}
		}
		_, err := source.Head(ctx, src, prefix+"nothing", make([]byte, 10))
		wantCode(t, err, errs.NotFound, prefix+"nothing")
	})

	t.Run("side by side", func(t *testing.T) {
		obj := stat(t, "big")
		small := stat(t, "a/one")
		small.Version = ""
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				p := make([]byte, 4096)
				for i := range 50 {
					off := (g*7919 + i*104729) % (len(big) - len(p))
					if err := src.ReadAt(ctx, obj, p, int64(off)); err != nil || !bytes.Equal(p, big[off:off+len(p)]) {
						t.Errorf("at %d: wrong bytes, or %v", off, err)
					}
					if err := src.ReadAt(ctx, small, p[:1], 0); err != nil || p[0] != '1' {
						t.Errorf("small: wrong bytes, or %v", err)
					}
				}
			})
		}
		wg.Wait()
	})

	t.Run("an ended context", func(t *testing.T) {
		ended, end := context.WithCancel(ctx)
		obj := stat(t, "a/one")
		end()
		if err := src.ReadAt(ended, obj, make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("ReadAt: %v", err)
		}
		if _, err := src.Stat(ended, obj.Name); !errors.Is(err, context.Canceled) {
			t.Errorf("Stat: %v", err)
		}
	})

	t.Run("changed", func(t *testing.T) {
		for _, watched := range []bool{true, false} {
			old := stat(t, "a/one")
			if !watched {
				old.Version = ""
			}
			if err := src.ReadAt(ctx, old, make([]byte, 1), 0); err != nil {
				t.Fatal(err)
			}
			write("a/one", append(bytes.Repeat([]byte("y"), int(old.Size)), 'z'))
			wantCode(t, src.ReadAt(ctx, old, make([]byte, 1), 0), errs.Changed, prefix+"a/one")
			if err := src.ReadAt(ctx, stat(t, "a/one"), make([]byte, 1), 0); err != nil {
				t.Errorf("what is there now cannot be read: %v", err)
			}
		}
	})
}

// wantCode checks that err is an error that helps: with this code, its place, and
// something to try.
func wantCode(t *testing.T, err error, code errs.Code, file string) {
	t.Helper()
	var e *errs.Error
	if !errors.As(err, &e) {
		t.Errorf("got %v, want an error with the code %s", err, code)
		return
	}
	if e.Code != code || e.What == "" || e.Hint == "" || e.Where.File != file && e.Where.Shard != file {
		t.Errorf("got %s %q at %v, hint %q; want %s at %s", e.Code, e.What, e.Where, e.Hint, code, file)
	}
}
