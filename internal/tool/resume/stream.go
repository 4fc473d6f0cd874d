package resume

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stream"
)

// Job is the work of a child: the first line of its input. Every byte after it lets
// the child take one more step; the end of the input ends the child.
type Job struct {
	Spec  spec.Spec `json:"spec"`
	State string    `json:"state"` // file: where to begin; rewritten after every step
}

// Step is what a child received in one step: a line of its output, written before
// the state is saved, so that no kill can lose it.
type Step struct {
	Epoch    int64    `json:"epoch"`
	Step     int64    `json:"step"`
	Position int64    `json:"position"` // after the step
	IDs      []int64  `json:"ids"`
	Valid    []bool   `json:"valid"`
	Rows     []uint64 `json:"rows"` // digest of each row's fields
	All      uint64   `json:"all"`  // digest of every byte of every column, valid or not
}

// deadline is how long a child waits for one batch.
const deadline = time.Minute

// Stream is the child: it resumes from the saved state, like a training loop that
// saves its state after every step.
func Stream(ctx context.Context, in io.Reader, out io.Writer) error {
	input := bufio.NewReader(in)
	line, err := input.ReadBytes('\n')
	var job Job
	if err == nil {
		err = jsontext.UnmarshalNames(line, &job)
	}
	if err != nil {
		return errs.New(errs.Config, "cannot read the job").Because(err).Try("run `stoker verify-resume`, which starts this verb")
	}
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	l, err := loader.Open(ctx, shared, job.Spec, loader.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	st, err := readState(job.State)
	if err == nil {
		err = l.Check(st)
	}
	if err != nil {
		return err
	}
	c := &child{job: job, l: l, fields: dtypes(l), in: input, out: json.NewEncoder(out)}
	return c.run(ctx, st)
}

type child struct {
	job    Job
	l      *loader.Loader
	fields map[string]mem.DType
	in     *bufio.Reader
	out    *json.Encoder
}

func (c *child) run(ctx context.Context, at stream.State) error {
	epoch, position := at.Epoch, at.Position
	for {
		pass, err := c.l.Pass(epoch, position, c.l.StepOf(position))
		if err != nil {
			return err
		}
		if position == 0 && pass.Steps() == 0 {
			pass.Cancel()
			return errs.New(errs.Config, "epoch %d has no step", epoch).Try("lower batch_size, or set tail to pad")
		}
		if more, err := c.pass(ctx, pass); err != nil || !more {
			pass.Cancel()
			return err
		}
		epoch, position = epoch+1, 0
	}
}

// pass takes the steps of a pass that it may; more reports whether it reached the
// end.
func (c *child) pass(ctx context.Context, pass *loader.Pass) (more bool, err error) {
	for {
		if _, err := c.in.ReadByte(); err != nil {
			return false, nil //nolint:nilerr // no more steps are wanted
		}
		b, err := pass.Next(ctx, deadline)
		if err == io.EOF { //nolint:errorlint // the end of the pass, which is not a step
			return true, c.in.UnreadByte()
		}
		if err != nil {
			return false, err
		}
		s, err := c.look(b)
		b.Release()
		if err == nil {
			err = c.out.Encode(s)
		}
		if err == nil {
			err = writeState(c.job.State, c.l.State(b.Epoch, b.Position))
		}
		if err != nil {
			return false, err
		}
	}
}

func readState(path string) (st stream.State, err error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if err != nil {
		return st, errs.New(errs.State, "cannot read the saved state").Because(err)
	}
	return st, nil
}

// writeState replaces a state atomically: a kill meanwhile leaves the old one.
func writeState(path string, st stream.State) error {
	raw, err := json.Marshal(st)
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errs.New(errs.Unreadable, "cannot save the state").Because(err).Try("set TMPDIR to another folder")
	}
	return nil
}

// dtypes are the types of all columns of a batch.
func dtypes(l *loader.Loader) map[string]mem.DType {
	out := map[string]mem.DType{batch.IDs: mem.Int64, batch.Valid: mem.Bool}
	for _, f := range l.Fields() {
		if d, known := mem.ParseDType(f.DType); known {
			out[f.Name] = d
		}
	}
	return out
}

// look reads all of a batch.
func (c *child) look(b *loader.Batch) (*Step, error) {
	s := &Step{Epoch: b.Epoch, Step: b.Step, Position: b.Position, Rows: make([]uint64, b.Rows)}
	rows := make([]*xxhash.Digest, b.Rows)
	for i := range rows {
		rows[i] = xxhash.New()
	}
	all := xxhash.New()
	runs := c.runs(b)
	for _, col := range b.Columns {
		row, err := c.column(b, col.Name)
		if err != nil {
			return nil, err
		}
		for i := range b.Rows {
			var bytes []byte
			if col.Rows > 0 { // the samples' runs, one after the other
				size := c.fields[col.Name].Size()
				bytes = b.Slot.Mem[int(col.Off)+runs[i]*size : int(col.Off)+runs[i+1]*size]
			} else {
				bytes = row(i)
			}
			_, _ = all.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(bytes))))
			_, _ = all.Write(bytes)
			switch col.Name {
			case batch.IDs:
				s.IDs = append(s.IDs, int64(binary.LittleEndian.Uint64(bytes)))
			case batch.Valid:
				s.Valid = append(s.Valid, bytes[0] != 0)
			default:
				_, _ = rows[i].Write(binary.LittleEndian.AppendUint64(nil, uint64(len(bytes))))
				_, _ = rows[i].Write(bytes)
			}
		}
	}
	for i := range rows {
		s.Rows[i] = rows[i].Sum64()
	}
	s.All = all.Sum64()
	if len(s.IDs) != b.Rows || len(s.Valid) != b.Rows {
		return nil, errs.New(errs.Bug, "a batch of %d rows has %d ids", b.Rows, len(s.IDs))
	}
	return s, nil
}

// column returns the rows of a column without runs.
func (c *child) column(b *loader.Batch, name string) (func(i int) []byte, error) {
	dtype, known := c.fields[name]
	if !known {
		return nil, errs.New(errs.Bug, "column %q is not in the layout", name)
	}
	for _, col := range b.Columns {
		if col.Name != name {
			continue
		}
		slot := b.Slot.Mem
		if dtype == mem.Object {
			return func(i int) []byte {
				at := slot[col.Off+8*int64(i):]
				from, to := binary.LittleEndian.Uint64(at), binary.LittleEndian.Uint64(at[8:])
				return slot[uint64(col.Data)+from : uint64(col.Data)+to]
			}, nil
		}
		size := int64(mem.Shape(col.Shape).Elems() * dtype.Size())
		return func(i int) []byte { return slot[col.Off+int64(i)*size : col.Off+int64(i+1)*size] }, nil
	}
	return nil, errors.New("resume: a column is missing")
}

// runs is where each row's tokens begin, and where the last one's end; nil if
// there are no runs.
func (c *child) runs(b *loader.Batch) []int {
	lens, err := c.column(b, batch.SeqLens)
	if err != nil {
		return nil
	}
	out := make([]int, 1, b.Rows+1)
	for i := range b.Rows {
		out = append(out, out[i]+int(binary.LittleEndian.Uint32(lens(i))))
	}
	return out
}
