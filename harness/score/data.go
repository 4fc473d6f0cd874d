package score

import (
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Data is a dataset that jobs read. All are made once, from fixed seeds.
type Data string

// The datasets.
const (
	Nothing  Data = ""         // samples are made, not read
	Small    Data = "small"    // 96 pictures of 128 x 96 pixels
	Large    Data = "large"    // the same as 1600 x 1200 pixels
	Files    Data = "files"    // 1,600 files of 8 KiB
	Blobs    Data = "blobs"    // 48 files of 2 MiB, read whole or in parts
	Array    Data = "array"    // a .npy array of 256 samples of 128 KiB
	Sizeable Data = "sizeable" // a .npy array of 1,024 samples of 128 KiB: more than some budgets
)

// Make writes a dataset into a folder, and says where it is.
func (d Data) make(folder string) (string, error) {
	at := filepath.Join(folder, string(d))
	if d == Nothing {
		return "", nil
	}
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	tmp := at + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	if err := d.write(tmp); err != nil {
		return "", err
	}
	return at, os.Rename(tmp, at)
}

func (d Data) write(at string) error {
	r := rand.New(rand.NewPCG(1, 2))
	switch d {
	case Small:
		return pictures(at, r, 128, 96)
	case Large:
		return pictures(at, r, 1600, 1200)
	case Files:
		return blobs(at, r, 1600, 8<<10)
	case Blobs:
		return blobs(at, r, 48, 2<<20)
	case Array:
		return array(at, r, 256)
	case Sizeable:
		return array(at, r, 1024)
	}
	return fmt.Errorf("score: no dataset %q", d)
}

// class is the folder of a file: as torchvision's ImageFolder has them.
func class(at string, i int, name string) (string, error) {
	folder := filepath.Join(at, fmt.Sprintf("class%d", i%4))
	return filepath.Join(folder, fmt.Sprintf(name, i)), os.MkdirAll(folder, 0o755)
}

// pictures are smooth with some noise, so that they take about as long to decode
// as photographs do.
func pictures(at string, r *rand.Rand, w, h int) error {
	for i := range 96 {
		path, err := class(at, i, "%04d.jpg")
		if err != nil {
			return err
		}
		if i >= 12 { // decoders do not care that it is the same one
			from, err := class(at, i%12, "%04d.jpg")
			if err != nil {
				return err
			}
			b, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				return err
			}
			continue
		}
		if err := picture(path, r, w, h); err != nil {
			return err
		}
	}
	return nil
}

func picture(path string, r *rand.Rand, w, h int) error {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	base := r.IntN(128)
	for y := range h {
		for x := range w {
			n := r.IntN(24)
			m.SetRGBA(x, y, color.RGBA{uint8(base + 96*x/w + n), uint8(base + 96*y/h + n), uint8(128 - base/2 + n), 255})
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := jpeg.Encode(f, m, &jpeg.Options{Quality: 90}); err != nil {
		return err
	}
	return f.Close()
}

func blobs(at string, r *rand.Rand, n, size int) error {
	b := make([]byte, size)
	for i := range n {
		path, err := class(at, i, "%05d.bin")
		if err != nil {
			return err
		}
		fill(b, r)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// array is one file of n samples of 128 KiB, as numpy.save writes it.
func array(at string, r *rand.Rand, n int) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }", n, 128<<10)
	for (10+len(head)+1)%64 != 0 {
		head += " "
	}
	head += "\n"
	f, err := os.Create(filepath.Join(at, "x.npy"))
	if err != nil {
		return err
	}
	b := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(head)))...)
	if _, err := f.Write(append(b, head...)); err != nil {
		return err
	}
	sample := make([]byte, 128<<10)
	for range n {
		fill(sample, r)
		if _, err := f.Write(sample); err != nil {
			return err
		}
	}
	return f.Close()
}

func fill(b []byte, r *rand.Rand) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
}
