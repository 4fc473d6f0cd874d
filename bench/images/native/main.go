//go:build bench

// Command native decodes PNG, WebP and TIFF as stoker's lanes do, and unpacks zlib streams by
// stoker's inflater, Go's and klauspost's, each when the driver says so.
//
//	native NAME PLAN    serve the plan's groups by NAME, one of names; bench/images/serve.py tells the protocol
package main

import (
	"bytes"
	stdzlib "compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zlib"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// item is one file of the plan: a picture, or a zlib stream that unpacks to Size bytes.
type item struct {
	Path string
	Size int
	data []byte
}

type group struct {
	Kind  string // picture, grey (wanted as one channel) or stream
	Items []*item
}

// work makes the pixels or bytes of an item, in memory that the next call uses again.
type work func(kind string, i *item) ([]byte, error)

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: native stoker|compress/flate|klauspost PLAN")
	}
	versions := map[string]string{"go": runtime.Version()}
	switch args[0] {
	case "stoker":
		versions["target"] = kernel.Target()
		versions["libraries"] = strings.Join(kernel.Libraries(), ", ")
		return serve(args[1], stoker(), versions)
	case "compress/flate":
		return serve(args[1], readers(func(r io.Reader) (io.ReadCloser, error) { return stdzlib.NewReader(r) }), versions)
	case "klauspost":
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, m := range info.Deps {
				if strings.HasSuffix(m.Path, "klauspost/compress") {
					versions["klauspost/compress"] = m.Version
				}
			}
		}
		return serve(args[1], readers(zlib.NewReader), versions)
	}
	return fmt.Errorf("%s: not known", args[0])
}

func stoker() work {
	d := decode.NewDecoder()
	var z kernel.Inflater
	var out []byte
	return func(kind string, i *item) ([]byte, error) {
		if kind != "stream" {
			p, err := d.Pixels(i.data, kind == "grey")
			return p.Pix, err
		}
		if need := i.Size + kernel.InflateSlack; len(out) < need {
			out = make([]byte, need)
		}
		_, _, err := z.Zlib(out, i.Size, i.data)
		return out[:i.Size], err
	}
}

// readers is one of Go's, which is used again.
func readers(open func(io.Reader) (io.ReadCloser, error)) work {
	var z io.ReadCloser
	var src bytes.Reader
	var out []byte
	return func(_ string, i *item) (_ []byte, err error) {
		src.Reset(i.data)
		if z == nil {
			z, err = open(&src)
		} else {
			err = z.(zlib.Resetter).Reset(&src, nil)
		}
		if err != nil {
			return nil, err
		}
		if len(out) < i.Size {
			out = make([]byte, i.Size)
		}
		if _, err = io.ReadFull(z, out[:i.Size]); err != nil {
			return nil, err
		}
		var more [1]byte
		if _, err = z.Read(more[:]); err != io.EOF { //nolint:errorlint // as it is
			return nil, fmt.Errorf("after the last byte: %v", err)
		}
		return out[:i.Size], nil
	}
}

func serve(plan string, do work, versions map[string]string) error {
	text, err := os.ReadFile(plan)
	if err != nil {
		return err
	}
	var groups map[string]group
	if err := json.Unmarshal(text, &groups); err != nil {
		return err
	}
	for _, g := range groups {
		for _, i := range g.Items {
			if i.data, err = os.ReadFile(i.Path); err != nil {
				return err
			}
		}
	}
	runtime.GC()
	answer := json.NewEncoder(os.Stdout)
	if err := answer.Encode(map[string]any{"versions": versions}); err != nil {
		return err
	}
	for requests := json.NewDecoder(os.Stdin); ; {
		var r struct {
			Group string
			Check bool
		}
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := answer.Encode(turn(groups[r.Group], r.Check, do)); err != nil {
			return err
		}
	}
}

// turn goes over a group once.
func turn(g group, check bool, do work) map[string]any {
	sums := []uint32{}
	cpu, wall := cpuSeconds(), time.Now()
	for _, i := range g.Items {
		p, err := do(g.Kind, i)
		if err != nil {
			return map[string]any{"error": fmt.Sprintf("%s: %v", i.Path, err)}
		}
		if check {
			sums = append(sums, crc32.ChecksumIEEE(p))
		}
	}
	if check {
		return map[string]any{"sums": sums}
	}
	return map[string]any{"cpu": cpuSeconds() - cpu, "wall": time.Since(wall).Seconds()}
}

// cpuSeconds is what all threads of this process have used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
