package transform

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// tried is a program's result, or its error.
func tried(p *Program, l *Lane, encoded []byte, key rng.Key) (mem.Shape, []byte, error) {
	shape, err := p.Begin(l, encoded, key)
	if err != nil {
		return nil, nil, err
	}
	shape = slices.Clone(shape)
	out := make([]byte, shape.Elems()*p.DType().Size())
	return shape, out, p.Finish(l, out)
}

// viewParts are operations of views: crops that lead, crops that do not, whole
// pictures, and one that measures.
var viewParts = append(slices.Clone(parts), `{"op":"Compose","transforms":[{"op":"RandomAutocontrast","p":1},{"op":"Pad","padding":2}]}`, `{"op":"RandomResizedCrop","size":24,"scale":[0.05,0.3]}`)

// TestSharedDecodingIsExact: programs that share a picture's decoding give the bytes, or
// the errors, of programs that do not, whatever they are; damaged pictures included.
func TestSharedDecodingIsExact(t *testing.T) {
	alone, together := NewLane(), NewLane()
	defer alone.Close()
	defer together.Close()
	room := &counting{}
	together.Room = room
	var pictures [][]byte
	for _, name := range []string{"chelsea.jpg", "coffee.jpg", "wide.png", "gray.png"} {
		pictures = append(pictures, readSource(t, name))
	}
	pictures = append(pictures, readDecodable(t, "lossy-odd.webp"), readDecodable(t, "plain.gif"))
	cut := pictures[0][:2*len(pictures[0])/3]
	pictures = append(pictures, cut, pictures[2][:900])
	shares := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		codec := rapid.SampledFrom([]string{"rgb", "gray"}).Draw(rt, "codec")
		encoded := rapid.SampledFrom(pictures).Draw(rt, "picture")
		var programs []*Program
		var keys []rng.Key
		key := rng.Sample(rapid.Uint64().Draw(rt, "seed"), 1, 0)
		for i := range rapid.IntRange(2, 4).Draw(rt, "views") {
			ops, _ := drawProgram(rt, viewParts)
			p, err := Compile(codec, opsOf(t, ops), rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(rt, "layout"))
			if err != nil {
				rt.Skip(err) // channels at random
			}
			programs, keys = append(programs, p), append(keys, key.With(uint64(i)))
		}
		shares[together.Shared(programs, keys, encoded)]++
		for i, p := range programs {
			wantShape, want, wantErr := tried(p, alone, encoded, keys[i])
			shape, got, err := tried(p, together, encoded, keys[i])
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				rt.Fatalf("view %d: %v, not %v", i, err, wantErr)
			}
			if err == nil && (!slices.Equal(shape, wantShape) || !bytes.Equal(got, want)) {
				rt.Fatalf("view %d: other bytes", i)
			}
		}
		together.Unshare()
		if room.taken != room.given {
			rt.Fatalf("%d bytes were taken, %d given back", room.taken, room.given)
		}
	})
	if shares[true] < 5 || shares[false] < 1 {
		t.Errorf("shared %d times, not %d times", shares[true], shares[false])
	}
}

// TestSharedRegions: views that together read a part of the picture, with a picture of
// another kind between them.
func TestSharedRegions(t *testing.T) {
	alone, together := NewLane(), NewLane()
	defer alone.Close()
	defer together.Close()
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":24,"scale":[0.02,0.2]},"RandomVerticalFlip"]`), "")
	gray := mustCompile(t, "gray", opsOf(t, `[{"op":"CenterCrop","size":20}]`), "")
	jpeg, parts := readSource(t, "coffee.jpg"), 0
	for place := range int64(60) {
		key := rng.Sample(1, 0, place)
		keys := []rng.Key{key.With(0), key.With(1), key.With(2)}
		if !together.Shared([]*Program{p, p, p}, keys, jpeg) {
			continue
		}
		if at := together.shared.at; at.x > 0 && at.y > 0 {
			parts++
		}
		for _, key := range keys {
			_, got := whole(t, together, p, jpeg, key)
			if _, want := whole(t, alone, p, jpeg, key); !bytes.Equal(got, want) {
				t.Fatalf("place %d: other bytes", place)
			}
			_, got = whole(t, together, gray, jpeg, key)
			if _, want := whole(t, alone, gray, jpeg, key); !bytes.Equal(got, want) {
				t.Fatalf("place %d: another grey picture", place)
			}
		}
	}
	if together.Unshare(); parts < 20 {
		t.Errorf("%d parts of a picture were shared", parts)
	}
}

// allPoints gives a lane all entry points of one picture.
type allPoints struct {
	points []kernel.Point
	given  kernel.Entries
	leapt  int
}

func knownOf(t testing.TB, jpeg []byte) *allPoints {
	t.Helper()
	l := kernel.NewLane()
	defer l.Close()
	points, err := l.Points(jpeg, 850)
	if err != nil {
		t.Fatal(err)
	}
	return &allPoints{points: slices.Clone(points)}
}

func (k *allPoints) Of([]byte) *kernel.Entries {
	k.given = kernel.Entries{Known: k.points}
	return &k.given
}

func (k *allPoints) Learn(e *kernel.Entries) { k.leapt += e.Leapt }

// TestSharingWithEntryPoints: small views, of which each has a part of the picture to itself,
// are decoded apart where decoding can begin close to them, and together where it cannot.
// Their bytes are the same.
func TestSharingWithEntryPoints(t *testing.T) {
	alone, together := NewLane(), NewLane()
	defer alone.Close()
	defer together.Close()
	jpeg := readSource(t, "coffee.jpg")
	points := knownOf(t, jpeg)
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":24,"scale":[0.02,0.1]}]`), "")
	shares := map[bool]int{}
	for place := range int64(40) {
		key := rng.Sample(1, 0, place)
		keys := []rng.Key{key.With(0), key.With(1)}
		for _, enters := range []bool{false, true} {
			if together.Points = nil; enters {
				together.Points = points
			}
			if together.Shared([]*Program{p, p}, keys, jpeg) {
				shares[enters]++
			}
			for _, key := range keys {
				_, got := whole(t, together, p, jpeg, key)
				if _, want := whole(t, alone, p, jpeg, key); !bytes.Equal(got, want) {
					t.Fatalf("place %d: other bytes", place)
				}
			}
		}
	}
	if shares[true] >= shares[false] {
		t.Errorf("%d of 40 are shared with entry points, %d without", shares[true], shares[false])
	}
	if kernel.Target() != "go" && points.leapt == 0 {
		t.Error("no entry point was used")
	}
}

// TestSharedLargePictures: for a picture above a lane's share, the lane asks once, before
// it holds anything, and returns all.
func TestSharedLargePictures(t *testing.T) {
	px := kernel.Pixels{W: 3000, H: 2400, C: 3, Pix: make([]byte, 3000*2400*3)}
	for i := range px.Pix {
		px.Pix[i] = byte(i/9000 + i%251)
	}
	jpeg, err := kernel.EncodeJPEG(px, 80, "4:2:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	room, l, alone := &counting{}, NewLane(), NewLane()
	defer l.Close()
	defer alone.Close()
	l.Room = room
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"Resize","size":[40,50]},"RandomHorizontalFlip"]`), "")
	keys := []rng.Key{1, 2}
	if !l.Shared([]*Program{p, p}, keys, jpeg) {
		t.Fatal("it is not shared")
	}
	asked := room.taken
	if asked < int64(len(px.Pix)) || room.given != 0 {
		t.Errorf("%d bytes were taken, %d given back", asked, room.given)
	}
	for _, key := range keys {
		_, got := whole(t, l, p, jpeg, key)
		if _, want := whole(t, alone, p, jpeg, key); !bytes.Equal(got, want) {
			t.Error("other bytes")
		}
	}
	if room.taken != asked {
		t.Errorf("%d bytes more were taken while the lane held some", room.taken-asked)
	}
	if l.Unshare(); room.given != asked || cap(l.shared.buf) > 0 {
		t.Errorf("%d of %d bytes were given back, and %d are kept", room.given, asked, cap(l.shared.buf))
	}
}

// TestSharingDoesNotAllocate: per sample, once warm.
func TestSharingDoesNotAllocate(t *testing.T) {
	if kernel.Target() == "go" {
		t.Skip("the twin allocates")
	}
	l := NewLane()
	defer l.Close()
	jpeg, p, place := readSource(t, "chelsea.jpg"), mustCompile(t, "rgb", opsOf(t, usual), ""), int64(0)
	programs, keys, dst := []*Program{p, p}, make([]rng.Key, 2), make([]byte, 1<<20)
	run := func() {
		place++
		keys[0], keys[1] = rng.Sample(1, 1, place), rng.Sample(1, 2, place)
		l.Shared(programs, keys, jpeg)
		for _, key := range keys {
			shape, err := p.Begin(l, jpeg, key)
			if err == nil {
				err = p.Finish(l, dst[:shape.Elems()*4])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		l.Unshare()
	}
	for range 50 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n > 0 {
		t.Errorf("%v allocations a sample", n)
	}
}

// TestNotShared: what has nothing to share, or must not.
func TestNotShared(t *testing.T) {
	l := NewLane()
	defer l.Close()
	jpeg := readSource(t, "chelsea.jpg")
	crop := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":32}]`), "")
	draft := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":32,"draft":true}]`), "")
	gray := mustCompile(t, "gray", nil, "")
	corner := mustCompile(t, "rgb", opsOf(t, `[{"op":"Pad","padding":[0,0,0,0]},{"op":"CenterCrop","size":[300,8]}]`), "")
	flat := mustCompile(t, "rgb", opsOf(t, `[{"op":"CenterCrop","size":[8,451]}]`), "")
	keys := []rng.Key{1, 2}
	for what, programs := range map[string][]*Program{
		"one program":          {crop},
		"draft":                {crop, draft},
		"grey and colour":      {crop, gray},
		"a text":               {mustCompile(t, "text", nil, ""), crop},
		"hardly any in common": {corner, flat},
	} {
		if l.Shared(programs, keys[:len(programs)], jpeg) {
			t.Errorf("%s: shared", what)
		}
	}
	if l.Shared([]*Program{crop, crop}, keys, []byte("not a picture")) || l.Shared([]*Program{crop, crop}, keys, nil) {
		t.Error("no picture: shared")
	}
	l.Strict = true
	if l.Shared([]*Program{crop, crop}, keys, jpeg) {
		t.Error("a lane that looks for damage shares")
	}
}

// BenchmarkShared is two and ten views of a photograph, decoded apart, and together where
// that is estimated to cost less, without entry points and with all.
func BenchmarkShared(b *testing.B) {
	big := `[{"op":"RandomResizedCrop","size":224,"scale":[0.2,1]},"RandomHorizontalFlip"]`
	small := `[{"op":"RandomResizedCrop","size":96,"scale":[0.05,0.4]},"RandomHorizontalFlip"]`
	for name, views := range map[string][]string{
		"SimCLR": {big, big},
		"DINO":   {big, big, small, small, small, small, small, small, small, small},
		"small":  {small, small},
		"eight":  {small, small, small, small, small, small, small, small},
	} {
		var programs []*Program
		for _, ops := range views {
			programs = append(programs, mustCompile(b, "rgb", opsOf(b, ops), ""))
		}
		keys := make([]rng.Key, len(views))
		for _, photo := range []string{"coffee.jpg", "retina.jpg"} {
			encoded := readSource(b, photo)
			points := knownOf(b, encoded)
			for way := range 4 {
				together, enters := way%2 == 1, way > 1
				b.Run(fmt.Sprintf("%s/%s/shared=%v/points=%v", name, photo, together, enters), func(b *testing.B) {
					l := NewLane()
					defer l.Close()
					if enters {
						l.Points = points
					}
					shared := 0
					out := make([]byte, 224*224*3)
					for n := range b.N {
						key := rng.Sample(1, 0, int64(n))
						for i := range keys {
							keys[i] = key.With(uint64(i))
						}
						if together && l.Shared(programs, keys, encoded) {
							shared++
						}
						for i, p := range programs {
							shape, err := p.Begin(l, encoded, keys[i])
							if err != nil || p.Finish(l, out[:shape.Elems()]) != nil {
								b.Fatal(err)
							}
						}
						l.Unshare()
					}
					b.ReportMetric(float64(shared)/float64(b.N), "shared/op")
				})
			}
		}
	}
}
