// Package demo makes a small dataset of real photographs: random crops, zooms,
// flips, qualities and subsamplings of the six that come with stoker, about as
// large in pixels and bytes as ImageNet's files (0.2 megapixels; 95 KB on
// average, ImageNet's have 110; 4:4:4 mostly, a fifth 4:2:0). Noise or flat
// colour would decode at another speed than what people train on.
//
// It is made once, is the same on every machine whose kernel has libjpeg, and
// is checked against its own manifest before it is used again:
//
//	DIR/manifest.json          recipe, number and digest of the files
//	DIR/photos/CLASS/0001.jpg  the dataset
package demo

import (
	"context"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/testdata/photos"
)

// Count is the default number of pictures of a demo: enough to load for a second, few
// enough to make in three on a slow machine. The kernel without C takes twenty times as
// long for each.
func Count() int {
	if kernel.Target() == "go" {
		return 100
	}
	return 1000
}

// light is the two large photographs, compressed more (djpeg | cjpeg -quality 80 -optimize):
// 0.28 MB of every engine instead of 0.80. The demo shrinks them and adds grain.
//
//go:embed light/*.jpg
var light embed.FS

// recipe names the way pictures are made; if it changes, they are made anew.
const recipe = "stoker demo 2"

// manifest describes a finished dataset.
type manifest struct {
	Recipe string `json:"recipe"`
	Count  int    `json:"count"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"` // XXH64 over the XXH64 of every file, in order
}

// Dataset is the demo's dataset on disk.
type Dataset struct {
	Root  string // the folder of class folders
	Count int
	Bytes int64
	Made  bool // by this call
}

// Progress is called with the number of pictures made so far, by one goroutine at a
// time.
type Progress func(done, total int)

// Prepare returns the dataset of count pictures below dir: the existing one if every
// byte of it is right, otherwise a new one. Two calls that prepare the same dataset at
// once do not disturb each other. What an interrupted call leaves behind, a call more
// than an hour later removes.
func Prepare(ctx context.Context, dir string, count int, progress Progress) (Dataset, error) {
	final := filepath.Join(dir, fmt.Sprintf("demo-%d", count))
	if m, err := check(ctx, final, count); err == nil {
		return Dataset{Root: filepath.Join(final, "photos"), Count: m.Count, Bytes: m.Bytes}, nil
	} else if ctx.Err() != nil {
		return Dataset{}, ctx.Err()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Dataset{}, unwritable(dir, err)
	}
	sweep(dir)
	tmp, err := os.MkdirTemp(dir, "demo-*.tmp")
	if err != nil {
		return Dataset{}, unwritable(dir, err)
	}
	defer os.RemoveAll(tmp)
	m, err := makeAll(ctx, tmp, count, progress)
	if err != nil {
		return Dataset{}, err
	}
	if err := publish(ctx, tmp, final, count); err != nil {
		return Dataset{}, unwritable(dir, err)
	}
	return Dataset{Root: filepath.Join(final, "photos"), Count: m.Count, Bytes: m.Bytes, Made: true}, nil
}

// publish renames a finished dataset to its final name, unless a complete one has
// appeared there meanwhile. A damaged one is moved away in one step, so that of two
// processes that find it, neither removes what the other has just put there.
func publish(ctx context.Context, tmp, final string, count int) error {
	for range 5 {
		err := os.Rename(tmp, final)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, err := check(ctx, final, count); err == nil {
			return nil
		}
		away := tmp + ".old.tmp"
		if err := os.Rename(final, away); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(away); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s keeps coming back", final)
}

func unwritable(dir string, err error) error {
	return errs.New(errs.Unreadable, "cannot write the demo's photographs").
		At(errs.Where{File: dir}).Because(err).
		Try("free some space there (100 MB), or set STOKER_CACHE to a writable folder")
}

// sweep removes what killed demos left behind.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "demo-*.tmp"))
	for _, old := range left {
		if fi, err := os.Stat(old); err == nil && time.Since(fi.ModTime()) > time.Hour {
			_ = os.RemoveAll(old)
		}
	}
}

// check reads a dataset and compares it with its manifest.
func check(ctx context.Context, dir string, count int) (manifest, error) {
	raw, err := source.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return manifest{}, err
	}
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return manifest{}, err
	}
	if m.Recipe != recipe || m.Count != count {
		return manifest{}, errors.New("another recipe")
	}
	classes, err := names()
	if err != nil {
		return manifest{}, err
	}
	sums := make([]uint64, count)
	err = format.Each(ctx, count, func(i int) error {
		b, err := source.ReadFile(filepath.Join(dir, "photos", fileName(classes, i)))
		sums[i] = xxhash.Sum64(b)
		return err
	})
	if err != nil {
		return manifest{}, err
	}
	if digest(sums) != m.Digest {
		return manifest{}, errors.New("damaged")
	}
	return m, nil
}

func digest(sums []uint64) string {
	h := xxhash.New()
	for _, s := range sums {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, s))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// names are the photographs, which are also the classes.
func names() ([]string, error) {
	small, err := photos.Small.ReadDir(".")
	if err != nil {
		return nil, err
	}
	large, err := light.ReadDir("light")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range append(small, large...) {
		out = append(out, strings.TrimSuffix(e.Name(), ".jpg"))
	}
	slices.Sort(out)
	return out, nil
}

func fileName(classes []string, i int) string {
	return path.Join(classes[i%len(classes)], fmt.Sprintf("%04d.jpg", i/len(classes)))
}

// makeAll makes the pictures below dir on all cores, and the manifest last.
func makeAll(ctx context.Context, dir string, count int, progress Progress) (manifest, error) {
	classes, err := names()
	if err != nil {
		return manifest{}, err
	}
	sources := make([]kernel.Pixels, len(classes))
	err = format.Each(ctx, len(classes), func(i int) (err error) {
		sources[i], err = decoded(classes[i] + ".jpg")
		return errors.Join(err, os.MkdirAll(filepath.Join(dir, "photos", classes[i]), 0o755))
	})
	if err != nil {
		return manifest{}, err
	}
	var made, bytes atomic.Int64
	told := make(chan struct{}, 1) // one goroutine at a time reports progress
	sums := make([]uint64, count)
	err = format.Each(ctx, count, func(i int) error {
		jpeg, err := picture(sources[i%len(sources)], i)
		if err != nil {
			return errs.New(errs.Bug, "cannot make demo picture %d", i).Because(err)
		}
		sums[i] = xxhash.Sum64(jpeg)
		bytes.Add(int64(len(jpeg)))
		if err := os.WriteFile(filepath.Join(dir, "photos", fileName(classes, i)), jpeg, 0o644); err != nil {
			return unwritable(dir, err)
		}
		made.Add(1)
		if progress != nil {
			select {
			case told <- struct{}{}:
				progress(int(made.Load()), count)
				<-told
			default:
			}
		}
		return nil
	})
	if err != nil {
		return manifest{}, err
	}
	m := manifest{Recipe: recipe, Count: count, Bytes: bytes.Load(), Digest: digest(sums)}
	raw, err := json.Marshal(m)
	if err != nil {
		return m, err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), raw, 0o644); err != nil {
		return m, unwritable(dir, err)
	}
	return m, nil
}

// decoded is one of the photographs as pixels.
func decoded(name string) (kernel.Pixels, error) {
	raw, err := photos.Small.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = light.ReadFile("light/" + name)
	}
	if err != nil {
		return kernel.Pixels{}, err
	}
	h, err := kernel.ReadHeader(raw)
	if err != nil {
		return kernel.Pixels{}, err
	}
	lane := kernel.NewLane()
	defer lane.Close()
	p := kernel.Pixels{Pix: make([]byte, h.W*h.H*3), W: h.W, H: h.H, C: 3}
	return p, lane.Run(&kernel.Job{JPEG: raw, Dst: p.Pix})
}

// grain adds what zooming smooths away: the noise of a sensor, of the same brightness in
// all channels. Without it, files of this size in pixels have a third of the bytes of a
// camera's.
func grain(pix []byte, key rng.Key) {
	strength := int32(key.Uniform(drawISO, 8, 32))
	var bits uint64
	for i, at := 0, 0; at < len(pix); i, at = i+1, at+3 {
		if i%4 == 0 {
			bits = key.Uint64(drawGrain + uint64(i/4))
		}
		// Two uniform bytes add up to a triangle around 255.
		d := (int32(bits&255) + int32(bits>>8&255) - 255) * strength >> 8
		bits >>= 16
		for c := range 3 {
			pix[at+c] = uint8(min(255, max(0, int32(pix[at+c])+d)))
		}
	}
}

// The random draws of one picture.
const (
	drawArea = iota
	drawAspect
	drawZoom
	drawX
	drawY
	drawFlip
	drawQuality
	drawSubsampling
	drawISO
	drawGrain // the first of very many
)

// seed of all pictures.
const seed = 6

// picture makes picture i from its photograph: a random box, zoomed, perhaps flipped,
// and encoded.
func picture(from kernel.Pixels, i int) ([]byte, error) {
	key := rng.New(seed).With(uint64(i))
	area := key.Uniform(drawArea, 130_000, 260_000)
	aspect := math.Exp(key.Uniform(drawAspect, math.Log(2.0/3), math.Log(3.0/2)))
	w, h := int(math.Sqrt(area*aspect)), int(math.Sqrt(area/aspect))
	// The smallest zoom, result over photograph per side, with which the box fits.
	least := max(float64(w)/float64(from.W), float64(h)/float64(from.H))
	zoom := max(least, math.Exp(key.Uniform(drawZoom, math.Log(0.4), math.Log(0.9))))
	bw, bh := min(from.W, int(float64(w)/zoom)), min(from.H, int(float64(h)/zoom))
	steps := []kernel.Step{
		{Op: kernel.OpCrop, X: int(key.Intn(drawX, int64(from.W-bw+1))), Y: int(key.Intn(drawY, int64(from.H-bh+1))), W: bw, H: bh},
		{Op: kernel.OpResize, W: w, H: h},
	}
	if key.Intn(drawFlip, 2) == 1 {
		steps = append(steps, kernel.Step{Op: kernel.OpFlipH})
	}
	lane := kernel.NewLane()
	defer lane.Close()
	pixels := kernel.Pixels{Pix: make([]byte, w*h*3), W: w, H: h, C: 3}
	if err := lane.Run(&kernel.Job{Src: from, Steps: steps, Dst: pixels.Pix}); err != nil {
		return nil, err
	}
	grain(pixels.Pix, key)
	u := key.Float64(drawQuality)
	quality := 95 - int(26*u*u*u*u) // 70 to 95, good ones more often
	subsampling := "4:4:4"
	switch d := key.Float64(drawSubsampling); {
	case d < 0.2:
		subsampling = "4:2:0"
	case d < 0.25:
		subsampling = "4:2:2"
	}
	jpeg, err := kernel.EncodeJPEG(pixels, quality, subsampling, 0)
	var unsupported kernel.UnsupportedError
	if errors.As(err, &unsupported) { // the kernel without C
		return kernel.EncodeJPEG(pixels, quality, "4:2:0", 0)
	}
	return jpeg, err
}
