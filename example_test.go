package stoker_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	stoker "github.com/stoker-data/stoker"
)

// sixPhotos is a dataset in a temporary folder: six photographs, a class each.
func sixPhotos() (root string, remove func()) {
	root, err := os.MkdirTemp("", "photos-")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"astronaut", "chelsea", "coffee", "hubble_deep_field", "retina", "rocket"} {
		raw, err := os.ReadFile("testdata/photos/" + name + ".jpg")
		if err != nil {
			log.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "1.jpg"), raw, 0o644); err != nil {
			log.Fatal(err)
		}
	}
	return root, func() { _ = os.RemoveAll(root) }
}

func Example() {
	root, remove := sixPhotos()
	defer remove()
	ctx := context.Background()
	loader, err := stoker.Open(ctx, stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{root}},
		Fields: []stoker.Field{
			{Name: "image", Decode: "rgb", Transform: []stoker.Op{
				stoker.Transform("RandomResizedCrop", stoker.Args{"size": 224}),
				stoker.Transform("RandomHorizontalFlip", nil),
			}},
			{Name: "label", Decode: "int"},
		},
		Order: stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 1},
		Batch: stoker.BatchSpec{Size: 4},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loader.Close()

	fmt.Println(loader.Len(), "samples in", loader.Steps(), "batches:", loader.Classes())
	for batch, err := range loader.Batches(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		images, err := batch.Uint8("image")
		if err != nil {
			log.Fatal(err)
		}
		labels, err := batch.Int64("label")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("step", batch.Step, images.Shape, labels.Data)
	}
	// Output:
	// 6 samples in 2 batches: [astronaut chelsea coffee hubble_deep_field retina rocket]
	// step 0 [4 224 224 3] [2 3 4 1]
	// step 1 [2 224 224 3] [5 0]
}

// A state is saved beside the model's weights, and restored before the next pass.
func ExampleLoader_Restore() {
	root, remove := sixPhotos()
	defer remove()
	ctx := context.Background()
	spec := stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{root}},
		Fields:  []stoker.Field{{Name: "label", Decode: "int"}},
		Order:   stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 1},
		Batch:   stoker.BatchSpec{Size: 2},
	}
	first, err := stoker.Open(ctx, spec)
	if err != nil {
		log.Fatal(err)
	}
	defer first.Close()
	var state stoker.State
	for batch, err := range first.Batches(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("trained on", batch.IDs())
		state = first.State()
		break // the machine goes down
	}

	second, err := stoker.Open(ctx, spec)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()
	if err := second.Restore(state); err != nil {
		log.Fatal(err)
	}
	for batch, err := range second.Batches(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("goes on with", batch.IDs())
	}
	// Output:
	// trained on [2 3]
	// goes on with [4 1]
	// goes on with [5 0]
}

func ExampleParseSpec() {
	_, err := stoker.ParseSpec([]byte("dataset: {path: data/train}\nbatch:   {sise: 64}\n"))
	fmt.Println(err)
	// Output:
	// the Spec has keys that do not exist: unknown key "batch.sise"
}
