//go:build bench

// Command native is the part of bench/jpeg that is not Python: stoker's kernel
// (for the target that STOKER_KERNEL names) and libjpeg-turbo itself, linked
// from the same library, each decoding when the driver says so; and packing.
//
//	native kernel PLAN          serve the plan's pictures; bench/jpeg/serve.py tells the protocol
//	native known PLAN           the same, with all their entry points, as later epochs have them
//	native libjpeg-turbo PLAN   the same, by the library that the kernel links
//	native libjpeg PATH PLAN    the same, by the libjpeg.so.62 at PATH
//	native check                of every file that standard input names: why the kernel does not decode it, or an empty line
//	native pack OUT             write those files again with restart markers, as stoker pack --jpeg index does
package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo !stoker_shared LDFLAGS: -l:libjpeg.a
#cgo stoker_shared LDFLAGS: -ljpeg
#cgo noescape turbo_decode
#cgo nocallback turbo_decode
#include "turbo.h"
*/
import "C"

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/entries"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	wanted := map[string]int{"check": 1, "pack": 2, "kernel": 2, "known": 2, "libjpeg-turbo": 2, "libjpeg": 3}
	if len(args) == 0 || len(args) != wanted[args[0]] {
		return errors.New("usage: native kernel|known|libjpeg-turbo PLAN, native libjpeg PATH PLAN, native pack OUT, or native check")
	}
	// One P more than there are processors, for the reason that bench/kernel gives.
	runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	switch args[0] {
	case "check":
		return eachNamed(check)
	case "pack":
		return pack(args[1])
	case "kernel", "known":
		lane := kernel.NewLane()
		defer lane.Close()
		return serve(args[1], &ours{lane: lane, learns: args[0] == "known"}, map[string]string{"target": kernel.Target(), "go": runtime.Version()})
	case "libjpeg-turbo":
		version := fmt.Sprintf("%d", int(C.turbo_version()))
		return serve(args[1], &turbo{C.turbo_new(nil)}, map[string]string{"libjpeg-turbo": version})
	case "libjpeg":
		opened := C.turbo_new(C.CString(args[1]))
		if opened == nil {
			return fmt.Errorf("%s: not a libjpeg.so.62 with jpeg_crop_scanline", args[1])
		}
		return serve(args[2], &turbo{opened}, map[string]string{"libjpeg": filepath.Base(args[1])})
	}
	return fmt.Errorf("%s: not known", args[0])
}

// eachNamed reads the files that standard input names, a line each.
func eachNamed(do func(l *kernel.Lane, i int, jpeg []byte) error) error {
	lane := kernel.NewLane()
	defer lane.Close()
	names := bufio.NewScanner(os.Stdin)
	for i := 0; names.Scan(); i++ {
		jpeg, err := os.ReadFile(names.Text())
		if err != nil {
			return err
		}
		if err := do(lane, i, jpeg); err != nil {
			return err
		}
	}
	return names.Err()
}

// check finds what would end a run. libjpeg-turbo goes on where the kernel refuses.
func check(l *kernel.Lane, _ int, jpeg []byte) error {
	head, err := kernel.ReadHeader(jpeg)
	if err == nil {
		err = l.Run(&kernel.Job{JPEG: jpeg, Dst: make([]byte, head.W*head.H*3)})
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	fmt.Println(why)
	return nil
}

// pack gives each file its number in out; one that is not rewritten is copied.
func pack(out string) error {
	return eachNamed(func(l *kernel.Lane, i int, jpeg []byte) error {
		indexed, _, err := l.IndexJPEG(nil, jpeg, kernel.IndexOptions{})
		if err != nil {
			indexed = jpeg
		}
		return os.WriteFile(filepath.Join(out, fmt.Sprintf("%06d.jpg", i)), indexed, 0o644)
	})
}

type box struct{ X, Y, W, H int }

// picture is one of the plan, and its file's bytes.
type picture struct {
	Path  string
	W, H  int
	Boxes []box
	jpeg  []byte

	points []kernel.Point // nil: not known
}

// pixels is the location of a box's RGB: rows of W pixels, stride bytes apart.
type pixels struct {
	rgb    []byte
	stride int
}

type decoder interface {
	decode(p *picture, b box, out []byte) (pixels, error)
}

// ours is the kernel by its only door. learns: it knows the entry points of every picture, as
// if an earlier epoch had passed all.
type ours struct {
	lane   *kernel.Lane
	learns bool

	entries kernel.Entries
}

func (o *ours) decode(p *picture, b box, out []byte) (pixels, error) {
	job := kernel.Job{JPEG: p.jpeg, Dst: out[:b.W*b.H*3]}
	if b.W != p.W || b.H != p.H {
		job.Steps = []kernel.Step{{Op: kernel.OpCrop, X: b.X, Y: b.Y, W: b.W, H: b.H}}
	}
	if o.learns {
		if p.points == nil { // when the driver compares pixels, before any clock starts
			points, err := o.lane.Points(p.jpeg, entries.Spacing)
			if err != nil && !errors.Is(err, kernel.ErrElsewhere) {
				return pixels{}, err
			}
			p.points = append([]kernel.Point{}, points...)
		}
		job.Entries = &o.entries
		o.entries = kernel.Entries{Known: p.points}
	}
	return pixels{job.Dst, b.W * 3}, o.lane.Run(&job)
}

type turbo struct{ c *C.turbo }

func (t *turbo) decode(p *picture, b box, out []byte) (pixels, error) {
	at := C.turbo_box{x: C.int(b.X), y: C.int(b.Y), w: C.int(b.W), h: C.int(b.H)}
	message := C.turbo_decode(t.c, (*C.uint8_t)(unsafe.SliceData(p.jpeg)), C.size_t(len(p.jpeg)), &at,
		(*C.uint8_t)(unsafe.SliceData(out)))
	if message != nil {
		return pixels{}, errors.New(C.GoString(message))
	}
	return pixels{out[at.first:], int(at.stride)}, nil
}

type request struct {
	Group, Mode string
	Check       bool
}

type server struct {
	decoder decoder
	groups  map[string][]*picture
	out     []byte
}

func serve(plan string, d decoder, versions map[string]string) error {
	s := server{decoder: d}
	text, err := os.ReadFile(plan)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.groups); err != nil {
		return err
	}
	most := 0
	for _, group := range s.groups {
		for _, p := range group {
			if p.jpeg, err = os.ReadFile(p.Path); err != nil {
				return err
			}
			most = max(most, p.W*p.H*3)
		}
	}
	s.out = make([]byte, most)
	runtime.GC()
	answer := json.NewEncoder(os.Stdout)
	if err := answer.Encode(map[string]any{"versions": versions}); err != nil {
		return err
	}
	for requests := json.NewDecoder(os.Stdin); ; {
		var r request
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := answer.Encode(s.answer(r)); err != nil {
			return err
		}
	}
}

func (s *server) answer(r request) map[string]any {
	sums := []uint32{}
	cpu, wall := cpuSeconds(), time.Now()
	n := 0
	err := s.turn(r, func(b box, got pixels) {
		n++
		if r.Check {
			sums = append(sums, sum(b, got))
		}
	})
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	if r.Check {
		return map[string]any{"sums": sums}
	}
	return map[string]any{"cpu": cpuSeconds() - cpu, "wall": time.Since(wall).Seconds(), "pictures": n}
}

// turn decodes every picture of the group once, or every first box of them, then
// every second one: no picture follows itself.
func (s *server) turn(r request, done func(box, pixels)) error {
	group := s.groups[r.Group]
	boxes := 1
	if r.Mode != "full" {
		boxes = len(group[0].Boxes)
	}
	for i := range boxes {
		for _, p := range group {
			want := box{W: p.W, H: p.H}
			if r.Mode == "region" {
				want = p.Boxes[i]
			}
			got, err := s.decoder.decode(p, want, s.out)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Path, err)
			}
			if r.Mode == "crop" { // of the whole picture: the reference of regions
				want = p.Boxes[i]
				got.rgb = got.rgb[want.Y*got.stride+want.X*3:]
			}
			done(want, got)
		}
	}
	return nil
}

func sum(b box, p pixels) uint32 {
	crc := uint32(0)
	for y := range b.H {
		crc = crc32.Update(crc, crc32.IEEETable, p.rgb[y*p.stride:][:b.W*3])
	}
	return crc
}

// cpuSeconds is what all threads of this process have used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
