package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/show"
)

type packCmd struct {
	Path      []string `arg:"" help:"The dataset, as for inspect, and last the folder to pack into; with --finish only that folder."`
	Output    string   `help:"Kind of shards: tar (WebDataset), tfrecord, npy or tokens (default tar; tokens with --tokenize)." placeholder:"KIND" choices:"tar,tfrecord,npy,tokens"`
	Name      string   `help:"Shards are called NAME-000000.tar and so on (default shard)." default:"shard" placeholder:"NAME"`
	ShardSize string   `help:"Approximate size of a shard (default 1GiB)." default:"1GiB" placeholder:"SIZE"`
	Compress  string   `help:"Compression: none, zstd, gzip or lz4 (default none)." default:"none" placeholder:"HOW" choices:"none,zstd,gzip,lz4"`
	Shuffle   bool     `help:"Pack in random order."`
	Seed      uint64   `help:"Seed of --shuffle and --augment." placeholder:"N"`
	Fields    []string `help:"Keep only these fields of the dataset." placeholder:"NAME"`
	Keys      string   `help:"Name samples by their number instead of the dataset's names." placeholder:"number" choices:"number"`

	Jpeg        string `help:"With index, rewrite JPEGs losslessly with restart markers, so that crops can be decoded alone." placeholder:"index" choices:"index"`
	Progressive string `help:"Progressive JPEGs with --jpeg index: refuse, convert or keep (default refuse)." placeholder:"HOW" choices:"refuse,convert,keep"`
	Resize      *int   `help:"Scale pictures down to this shortest side." placeholder:"PIXELS"`
	Crop        *int   `help:"Crop pictures to a centred square of this size." placeholder:"PIXELS"`
	Quality     *int   `help:"Quality of JPEGs that are encoded again (default 90)." placeholder:"Q"`
	Decode      bool   `help:"Store pictures as uint8 arrays."`
	Augment     *int64 `help:"Pack K variants of every sample." placeholder:"K"`
	Transform   string `help:"The transforms that make the variants, as JSON or in a file (default RandomResizedCrop(224) and a flip)." placeholder:"JSON"`

	Tokenize  string `help:"Turn text into tokens: gpt2, cl100k_base, o200k_base, or a SentencePiece (.model) or tiktoken file." placeholder:"VOCABULARY"`
	TextField string `help:"The field with the text (default text)." placeholder:"NAME"`
	TokenType string `help:"uint16 or uint32 (default: by the size of the vocabulary)." placeholder:"TYPE" choices:"uint16,uint32"`

	OnBad string `help:"Samples that cannot be read: fail, or skip to leave them out (default fail)." default:"fail" placeholder:"HOW" choices:"fail,skip"`

	Jobs      int    `help:"Samples processed at once; 0: one per core." placeholder:"N"`
	Task      string `help:"Make only part I of N, from 0; --finish joins the parts." placeholder:"I/N"`
	DryRun    bool   `help:"Write nothing; estimate the size, the time, and what is gained."`
	Finish    bool   `help:"Check that all parts are complete, and write the manifest."`
	Overwrite bool   `help:"Replace an existing packing."`
	JSON      bool   `help:"Write JSON."`

	Data     dataFlags `embed:""`
	Dataset  string    `hidden:"" help:"The dataset in the form of a Spec, as JSON, instead of its paths."`
	Progress bool      `hidden:"" help:"Write progress to standard error as lines of JSON."`
}

func (packCmd) Help() string {
	return `Examples:

  stoker pack data/train packed                          tar shards of about 1 GiB
  stoker pack data/train packed --jpeg index --dry-run   how large, how long, what gain
  stoker pack data/train packed --shuffle --compress zstd
  stoker pack data/train packed --jpeg index             the same pictures, decoded faster
  stoker pack data/train small --resize 512 --quality 90
  stoker pack data/train arrays --decode --resize 256 --crop 256 --output npy
  stoker pack 'corpus/*.jsonl' tokens --tokenize gpt2
  stoker pack data/train packed --task 3/16              part 3 of a job array; then: stoker pack packed --finish

If it was killed or stopped, run it again: it continues after the finished shards. The same input gives the same bytes.`
}

// packMemory is the heap size from which on the collector works harder, in bytes; what
// samples need at once is bounded by the packing itself.
const packMemory = 160 << 20

func (p packCmd) Run(con *console) error {
	debug.SetMemoryLimit(packMemory)
	con.client = p.Progress
	if p.Finish {
		return p.finish(con)
	}
	c, err := p.config()
	if err != nil {
		return err
	}
	shown := con.steps("packing")
	c.Sources, c.Indexing = con.sources(), shown.indexing.count
	if p.DryRun {
		e, err := pack.DryRun(con.ctx, c)
		shown.end()
		if err != nil {
			return err
		}
		return p.estimate(con, e)
	}
	machines := con.lines(p.Progress)
	c.Progress = func(done, total, bytes int64) {
		machines(done, total, bytes)
		shown.work().packed(done, total, bytes)
	}
	told := make(chan struct{})
	stop := context.AfterFunc(con.ctx, func() { // at once: what is read now may hang
		defer close(told)
		con.interrupted(p.stopped(c.Dst))
	})
	report, err := pack.Run(con.ctx, c)
	shown.end()
	if !stop() {
		<-told
	}
	if err != nil {
		return err
	}
	return p.tell(con, report)
}

// stopped reports how far an interrupted packing is, and how to continue.
func (p packCmd) stopped(dst string) string {
	again := "the same command"
	switch {
	case p.Progress:
		again = "the same call"
	case p.Overwrite:
		again = "the same command without --overwrite"
	}
	done, all, err := pack.Finished(dst)
	if err != nil || all == 0 {
		return "nothing was packed yet; " + again + " starts again"
	}
	return fmt.Sprintf("%s of %s finished; %s continues after them", show.Number(float64(done)),
		show.Count(int64(all), "shard is", "shards are"), again)
}

// config is the flags as a Config.
func (p packCmd) config() (c pack.Config, err error) {
	if p.Dataset != "" {
		p.Path = append([]string{""}, p.Path...)
	}
	if len(p.Path) < 2 {
		return c, errs.New(errs.Config, "give a dataset and a folder to pack it into").Try("stoker pack data/train packed")
	}
	last := len(p.Path) - 1
	if c.Dataset, err = p.Data.dataset(p.Path[:last]...); err != nil {
		return c, err
	}
	c.Dst, c.Jobs, c.Overwrite = p.Path[last], p.Jobs, p.Overwrite
	if p.Dataset != "" {
		if c.Dataset, err = datasetOf(p.Dataset); err == nil {
			err = p.Data.set(&c.Dataset)
		}
		if err != nil {
			return c, err
		}
	}
	if p.Task != "" {
		if c.Task, c.Tasks, err = task(p.Task); err != nil {
			return c, err
		}
	}
	if err := words(word{"--on-bad", p.OnBad, []string{spec.Fail, spec.Skip}}); err != nil {
		return c, err
	}
	size, err := spec.ParseBytes(p.ShardSize)
	if err != nil {
		return c, errs.New(errs.Config, "--shard-size: %v", err)
	}
	if size == 0 && p.ShardSize != "auto" {
		return c, errs.New(errs.Config, "--shard-size is %s, but no sample fits into that", p.ShardSize).Try("leave it out for 1GiB, or give a size such as 256MiB")
	}
	for _, f := range []struct {
		name string
		zero bool
	}{
		{"resize", p.Resize != nil && *p.Resize == 0},
		{"crop", p.Crop != nil && *p.Crop == 0},
		{"quality", p.Quality != nil && *p.Quality == 0},
		{"augment", p.Augment != nil && *p.Augment == 0},
	} {
		if f.zero {
			return c, errs.New(errs.Config, "--%s 0 has no meaning", f.name).Try("leave --%s out, or give at least 1", f.name)
		}
	}
	c.Options = pack.Options{
		Output: p.Output, Name: p.Name, ShardSize: int64(size), Compress: p.Compress, Shuffle: p.Shuffle, Seed: p.Seed, TokenType: p.TokenType, OnBad: p.OnBad,
		Options: prepare.Options{
			Fields: p.Fields, Keys: p.Keys, Resize: given(p.Resize), Crop: given(p.Crop), Quality: given(p.Quality), Decode: p.Decode, Augment: given(p.Augment),
			JPEG: p.Jpeg, Progressive: p.Progressive,
			Tokenize: p.Tokenize, TextField: p.TextField,
		},
	}
	if p.Transform != "" {
		c.Options.Transform, err = transforms(p.Transform)
	}
	return c, err
}

// given returns the value of a flag, or 0 if it was left out.
func given[T int | int64](v *T) T {
	if v == nil {
		return 0
	}
	return *v
}

// transforms reads a list of operations: JSON, or the file that holds it.
func transforms(s string) (ops []transform.Op, err error) {
	text := []byte(s)
	if !strings.HasPrefix(strings.TrimSpace(s), "[") {
		if text, err = os.ReadFile(s); err != nil {
			return nil, errs.New(errs.NotFound, "--transform is neither JSON nor a readable file").Because(err).
				Try(`--transform '[{"op": "RandomCrop", "size": 224}]'`)
		}
	}
	if err := json.Unmarshal(text, &ops); err != nil {
		return nil, errs.New(errs.Config, "--transform is not a list of transforms").Because(err).
			Try(`--transform '[{"op": "RandomCrop", "size": 224}]'`)
	}
	return ops, nil
}

// task reads "3/16".
func task(s string) (i, n int, err error) {
	a, b, both := strings.Cut(s, "/")
	i, errI := strconv.Atoi(a)
	n, errN := strconv.Atoi(b)
	if !both || errI != nil || errN != nil || i < 0 || i >= n {
		return 0, 0, errs.New(errs.Config, "--task is %q, but must be PART/PARTS", s).Try("parts are counted from 0: --task 0/4 to --task 3/4")
	}
	return i, n, nil
}

func (p packCmd) finish(con *console) error {
	if p.Task != "" || p.Overwrite {
		return errs.New(errs.Config, "--finish cannot be combined with --task or --overwrite")
	}
	report, err := pack.Finish(p.Path[len(p.Path)-1])
	if err != nil {
		return err
	}
	return p.tell(con, report)
}

// left reports, on the error stream, which parts of the dataset are not in the packing.
func (p packCmd) left(con *console, all []format.Left) {
	if p.Progress || len(all) == 0 { // the client reads it in the manifest
		return
	}
	const shown = 10
	var names []string
	for _, l := range all[:min(len(all), shown)] {
		names = append(names, fmt.Sprintf("%q (%s)", l.Name, l.Reason))
	}
	if more := len(all) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	fmt.Fprintf(con.err, "stoker: left out of the packing, or of some of its samples: %s; use --fields to choose what is packed\n", errs.Plain(strings.Join(names, ", ")))
}

// bad names the samples that could not be read, beside the results.
func (p packCmd) bad(con *console, all []packing.Bad) {
	if p.Progress || len(all) == 0 { // the client reads it in the manifest
		return
	}
	const shown = 10
	for _, b := range all[:min(len(all), shown)] {
		fmt.Fprintf(con.err, "stoker: left out: sample %d (%s): %s\n", b.Sample, errs.Plain(string(b.File)), b.Error)
	}
	if more := len(all) - shown; more > 0 {
		fmt.Fprintf(con.err, "stoker: left out: %s more, in %s\n", show.Number(float64(more)), pack.ManifestName)
	}
}

// estimate prints the estimate of a packing.
func (p packCmd) estimate(con *console, e *pack.Estimate) error {
	p.left(con, e.LeftOut)
	if p.JSON {
		return con.writeJSON(e)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s in about %s, about %s; the dataset is %s in %s\n", p.Path[len(p.Path)-1],
		show.Count(e.Samples, "sample", "samples"), show.Count(e.Shards, "shard", "shards"), show.Size(e.Bytes),
		show.Size(e.SourceBytes), show.Count(e.SourceFiles, "file", "files"))
	fmt.Fprintf(&b, "about %s of work with %s, not counting waits for disks\n", show.Time(seconds(e.Seconds)), show.Count(int64(e.Jobs), "job", "jobs"))
	if e.SourceMicros > 0 {
		fmt.Fprintf(&b, "a crop of a picture takes %.0f us now and %.0f us packed: %.2f times as fast\n", e.SourceMicros, e.PackedMicros, e.SourceMicros/e.PackedMicros)
	} else {
		fmt.Fprintf(&b, "nothing is decoded faster; the gain is reading %s sequentially instead of %s\n",
			show.Count(e.Shards, "file", "files"), show.Count(e.SourceFiles, "file", "files"))
	}
	fmt.Fprintf(&b, "measured with %s; nothing was written\n", show.Count(int64(e.Measured), "sample", "samples"))
	if p.OnBad == spec.Skip {
		b.WriteString(tried(e))
	}
	_, err := fmt.Fprint(con.out, b.String())
	return err
}

// tried says which of the samples that would be left out the estimate knows of.
func tried(e *pack.Estimate) string {
	bad := show.Count(int64(e.Bad), "sample", "samples")
	if e.Untried == 0 {
		return bad + " would be left out: every sample was tried\n"
	}
	return fmt.Sprintf("%s of those that were tried would be left out; %s not tried and may have more: stoker verify finds all\n",
		bad, show.Count(e.Untried, "sample was", "samples were"))
}

// tell prints what was done.
func (p packCmd) tell(con *console, r *pack.Report) error {
	p.left(con, r.LeftOut)
	if r.Manifest != nil {
		p.bad(con, r.Manifest.Bad())
	}
	if p.JSON {
		return con.writeJSON(r)
	}
	dst := p.Path[len(p.Path)-1]
	if r.Note != "" {
		fmt.Fprintf(con.out, "note: %s\n", r.Note)
	}
	if r.Manifest == nil {
		_, err := fmt.Fprintf(con.out, "part %s: %s made; %s in all\nwhen all parts are made: stoker pack %s --finish\n", p.Task,
			show.Count(int64(r.Made), "shard", "shards"), show.Number(float64(r.Shards)), dst)
		return err
	}
	m := r.Manifest
	_, err := fmt.Fprintf(con.out, "%s: %s in %s, %s; %s by this run\n", dst, show.Count(m.Samples, "sample", "samples"),
		show.Count(int64(r.Shards), "shard", "shards"), show.Size(m.Bytes), show.Count(int64(r.Made), "was made", "were made"))
	if n := int64(len(m.Bad())); n > 0 && err == nil {
		_, err = fmt.Fprintf(con.out, "%s left out because of damage: see \"bad\" in %s\n", show.Count(n, "sample was", "samples were"), pack.ManifestName)
	}
	if n := m.Converted(); n > 0 && err == nil {
		_, err = fmt.Fprintf(con.out, "%s made sequential\n", show.Count(n, "progressive picture was", "progressive pictures were"))
	}
	return err
}
