// Command train teaches a linear classifier to tell the classes of a folder of
// photographs apart, and can be stopped with Ctrl-C and started again at any
// time: it goes on with the very batch that would have come next.
//
//	stoker demo                                        # makes photographs, says where
//	go run ./examples/go/train -data FOLDER -epochs 3
//
// The model is small so that the program stays about the loading: softmax over
// 32 x 32 colours, plain gradient descent, no library.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math"
	"os"
	"os/signal"

	stoker "github.com/stoker-data/stoker"
)

const side = 32

func main() {
	log.SetFlags(0)
	data := flag.String("data", "", "folder with one folder of photographs per class")
	epochs := flag.Int64("epochs", 3, "walks through all photographs")
	saved := flag.String("checkpoint", "train.json", "where the model and the loader's state are kept")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *data, *saved, *epochs); err != nil {
		var e *stoker.Error
		if errors.As(err, &e) && e.Hint != "" {
			log.Fatalf("%s\n  try: %s", e, e.Hint)
		}
		log.Fatal(err)
	}
}

// checkpoint is all that a training run needs to go on.
type checkpoint struct {
	Loader stoker.State `json:"loader"`
	Model  model        `json:"model"`
}

func run(ctx context.Context, data, saved string, epochs int64) error {
	loader, err := stoker.Open(ctx, stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{data}},
		Fields: []stoker.Field{
			{Name: "image", Decode: "rgb", Transform: []stoker.Op{
				stoker.Transform("RandomResizedCrop", stoker.Args{"size": side, "scale": []float64{0.3, 1}}),
				stoker.Transform("RandomHorizontalFlip", nil),
				stoker.Transform("ToTensor", nil),
				stoker.Transform("Normalize", stoker.Args{"mean": 0.5, "std": 0.25}),
			}},
			{Name: "label", Decode: "int"},
		},
		Order: stoker.Order{Shuffle: stoker.ShuffleFull},
		Batch: stoker.BatchSpec{Size: 32},
	})
	if err != nil {
		return err
	}
	defer loader.Close()

	c, err := restore(saved, loader)
	if err != nil {
		return err
	}
	for epoch := c.Loader.Epoch; epoch < epochs; epoch++ {
		loader.SetEpoch(epoch) // of the restored epoch: keeps the restored place
		loss, right, seen := 0.0, 0, 0
		for batch, err := range loader.Batches(ctx) {
			if err != nil {
				if ctx.Err() != nil {
					log.Printf("stopped in epoch %d; start again to go on", epoch)
					return save(saved, c)
				}
				return err
			}
			images, err := batch.Float32("image") // [32 3 32 32]
			if err != nil {
				return err
			}
			labels, err := batch.Int64("label")
			if err != nil {
				return err
			}
			for i, label := range labels.Data {
				l, ok := c.Model.learn(images.Row(i), int(label))
				loss += l
				seen++
				if ok {
					right++
				}
			}
			c.Loader = loader.State() // belongs to the model as it is now
		}
		if seen > 0 {
			fmt.Printf("epoch %d: loss %.3f, %.0f %% right, over %d photographs\n", epoch, loss/float64(seen), 100*float64(right)/float64(seen), seen)
		}
		if err := save(saved, c); err != nil {
			return err
		}
	}
	return nil
}

// restore is the checkpoint in a file, or a fresh one.
func restore(path string, loader *stoker.Loader) (*checkpoint, error) {
	c := &checkpoint{Loader: loader.State(), Model: newModel(len(loader.Classes()))}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, loader.Restore(c.Loader)
}

func save(path string, c *checkpoint) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// model is one row of weights per class, the last of each its bias.
type model struct {
	Weights [][]float64 `json:"weights"`
}

const inputs = 3 * side * side

func newModel(classes int) model {
	m := model{Weights: make([][]float64, classes)}
	for i := range m.Weights {
		m.Weights[i] = make([]float64, inputs+1)
	}
	return m
}

// learn takes one step of gradient descent on one picture, and gives the loss
// before it and whether the guess was right.
func (m model) learn(x []float32, label int) (loss float64, right bool) {
	const rate = 0.0003
	scores := make([]float64, len(m.Weights))
	best := 0
	for c, w := range m.Weights {
		scores[c] = w[inputs]
		for i, v := range x {
			scores[c] += w[i] * float64(v)
		}
		if scores[c] > scores[best] {
			best = c
		}
	}
	sum, top := 0.0, scores[best]
	for c := range scores {
		scores[c] = math.Exp(scores[c] - top)
		sum += scores[c]
	}
	for c, w := range m.Weights {
		g := scores[c] / sum
		if c == label {
			loss = -math.Log(max(g, 1e-300))
			g--
		}
		for i, v := range x {
			w[i] -= rate * g * float64(v)
		}
		w[inputs] -= rate * g
	}
	return loss, best == label
}
