// Package wire is the protocol between an engine and its client: frames,
// messages, and the control page they share. Golden frames in testdata/wire are
// tested by both languages.
//
// A frame is a length (uint32, little endian: the number of bytes that follow) and
// that many bytes of JSON: one object with a "type". A byte of a file name that is
// not UTF-8 is a lone surrogate, as in Python's file functions. Descriptors are
// sent with the first byte of the frame that names them (SCM_RIGHTS). Arrays are
// never sent here. The first frame of each side is Hello. End of file means that
// the other side is gone.
//
// The client asks, the engine answers: every request has a number ("req") that its
// answer repeats; an Error may answer any request. Progress may come before the
// answer to open (how far indexing has come) and to next (samples arrive, though no
// batch is full): the client's timeout begins again with it. Cancel and close have
// no answer. Slot may come before any answer: with bytes, it is memory to map;
// without, memory that the engine has freed.
//
//	client                          engine
//	hello                  ->
//	                       <-       hello   (+ control page, eventfd)
//	open    {spec}         ->
//	                       <-       progress* opened
//	pass    {epoch, ...}   ->
//	                       <-       passed
//	next    {pass}         ->
//	                       <-       progress* slot* (+ memfd) batch | batches | end
//	table   {columns}      ->
//	                       <-       table   (+ memfd)
//	stats   {loader, stats?} ->      (the statistics that it received before)
//	                       <-       stats
//	ask     {loader, ask}  ->
//	                       <-       told
//	worker  {loader, pid} (+ socket) ->
//	                       <-       hired
//	next    {pass}         ->
//	                       <-       hire    (instead of a batch)
//	cancel  {pass, ...}    ->
//	dismiss {loader}       ->
//	close   {loader}       ->
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
)

// Protocol is the version of everything in this package. Engine and client must
// have the same version.
const Protocol = 2

// MaxFrame is the length of the longest frame that is read, in bytes.
const MaxFrame = 64 << 20

// The types of messages.
const (
	TypeHello    = "hello"
	TypeOpen     = "open"
	TypeOpened   = "opened"
	TypeProgress = "progress"
	TypePass     = "pass"
	TypePassed   = "passed"
	TypeNext     = "next"
	TypeSlot     = "slot"
	TypeBatch    = "batch"
	TypeBatches  = "batches"
	TypeEnd      = "end"
	TypeCancel   = "cancel"
	TypeClose    = "close"
	TypeTable    = "table"
	TypeStats    = "stats"
	TypeAsk      = "ask"
	TypeTold     = "told"
	TypeWorker   = "worker"
	TypeHired    = "hired"
	TypeHire     = "hire"
	TypeDismiss  = "dismiss"
	TypeError    = "error"
)

// Message is every message. Fields that a type does not use are zero, and most of
// them are then absent in JSON. Requests and answers share a field if it means the
// same.
type Message struct {
	Type string `json:"type"`
	Req  int64  `json:"req,omitempty"`

	// hello
	Protocol int       `json:"protocol,omitempty"`
	Version  string    `json:"version,omitempty"` // of stoker
	PID      int       `json:"pid,omitempty"`
	Lanes    int       `json:"lanes,omitempty"`    // engine
	Kernel   string    `json:"kernel,omitempty"`   // engine: which pixel kernel runs
	Suspects []Suspect `json:"suspects,omitempty"` // client: samples in work when engines died

	// open (client): a loader over a Spec; opened (engine)
	Spec     json.RawMessage `json:"spec,omitempty"`
	Stored   bool            `json:"stored,omitempty"` // only stored samples are read, and no batch is made
	Bare     bool            `json:"bare,omitempty"`   // the client makes floats of pictures, as Field.Left says
	Mixes    bool            `json:"mixes,omitempty"`  // the client does what the batch transform chooses
	Loader   int64           `json:"loader,omitempty"`
	Samples  int64           `json:"samples,omitempty"`
	Digest   string          `json:"digest,omitempty"`   // of the dataset
	Pipeline string          `json:"pipeline,omitempty"` // of fields and transforms
	Classes  []jsontext.Name `json:"classes,omitempty"`
	Format   string          `json:"format,omitempty"`
	Fields   []Field         `json:"fields,omitempty"`
	Notes    []string        `json:"notes,omitempty"`  // lines that the user should see once
	Order    json.RawMessage `json:"order,omitempty"`  // opened: what states say about the order
	Stride   int64           `json:"stride,omitempty"` // opened: items that a step takes over all ranks
	// opened: what else states say, and which other datasets they fit
	Processing string   `json:"processing,omitempty"` // pipeline, without the names of fields
	Blocks     string   `json:"blocks,omitempty"`     // digest of the sizes of a block shuffle's blocks
	Sources    []string `json:"sources,omitempty"`    // digests of what the dataset was packed from
	Altered    string   `json:"altered,omitempty"`    // how packing changed what is delivered
	// opened: digests of what the dataset was packed from as another sequence of
	// samples, and how: states of those do not fit
	Unlike   map[string]string `json:"unlike,omitempty"`
	Contents []Contents        `json:"contents,omitempty"` // opened: one a dataset, what was there when it was indexed

	// progress (engine)
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"` // 0: unknown
	What  string `json:"what,omitempty"`
	Stuck *Stuck `json:"stuck,omitempty"` // while a client waits that asked for it
	// Waiting says which server the engine waits for, and since when.
	Waiting string `json:"waiting,omitempty"`

	// pass (client) and passed, next, batch, end, cancel
	Pass     int64 `json:"pass,omitempty"`
	Epoch    int64 `json:"epoch"`
	Position int64 `json:"position"`          // places of the epoch before this pass, or after this batch
	Steps    int64 `json:"steps"`             // passed: batches this pass will give
	Step     int64 `json:"step"`              // batch: its number in the pass; cancel: the first that the client does not keep
	Timeout  int64 `json:"timeout,omitempty"` // next: milliseconds until a stall is an error; 0: never
	Slow     int64 `json:"slow,omitempty"`    // next: milliseconds until a worker that is stuck is shown; 0: never
	List     *List `json:"list,omitempty"`    // pass: the order, if the client decides it
	Bundle   int   `json:"bundle,omitempty"`  // pass: batches that one answer may have; 0: one
	// pass: where each worker begins, if workers iterate the dataset; absent: at the beginning
	Points []Point `json:"points,omitempty"`
	// pass: samples whose pictures the client could not decode: the engine does it
	Refused []int64 `json:"refused,omitempty"`
	// next: what the client has got of the same pass by earlier ones, once; absent: nothing. cancel:
	// what it keeps, up to step; absent: all
	Before *Before `json:"before,omitempty"`

	// ask (client: a question about the order, see Ask), told (engine)
	Ask    *Ask            `json:"ask,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`

	// slot and batch (engine): a batch is in a slot, a slot is a memfd
	Slot  int64      `json:"slot"`
	Bytes int64      `json:"bytes,omitempty"` // slot: size of its memfd, 0 if it was freed; table: size of the JSON
	Rows  int        `json:"rows,omitempty"`  // batch: samples in it
	Data  []Column   `json:"data,omitempty"`  // batch: where the fields are
	Bad   []BadPlace `json:"bad,omitempty"`   // batch: samples skipped or replaced
	Sum   string     `json:"sum,omitempty"`   // batch: what it adds to a receipt, 32 hexadecimal digits
	Real  int64      `json:"real,omitempty"`  // batch: samples in sum

	// batch: what the batch transform chose, if the client has to mix it
	Mixed *Mixed `json:"mixed,omitempty"`

	// batches (engine): a batch message for several steps from Step on, each with
	// Rows rows, one step after the other in every column; Position is that of the
	// last step, and no sample is bad
	Parts []Part `json:"parts,omitempty"` // one per step

	// table (client: which columns of the dataset; engine: a memfd with them as JSON)
	Columns []string `json:"columns,omitempty"`

	// stats (engine)
	Stats json.RawMessage `json:"stats,omitempty"`

	// open: Python workers make the samples; worker: PID is that of one, whose socket comes
	// with the message; hire (instead of a batch): so many are missing, and which have ended
	Crew    *Crew   `json:"crew,omitempty"`
	Place   int     `json:"place,omitempty"` // worker: its number, from 0
	Missing int     `json:"missing,omitempty"`
	Died    []Death `json:"died,omitempty"`
	// batch: what its columns are, for the client; only for samples that its own code made
	Structure []byte `json:"structure,omitempty"`

	Error *Error `json:"error,omitempty"`
}

// Before is what a client has got of a pass that is walked in several parts, as those of a list, or
// that begins again after a batch: the limits of bad samples count it.
type Before struct {
	Rows int64 `json:"rows"`
	Bad  int64 `json:"bad"`
}

// Crew is how Python code makes the samples of a loader.
type Crew struct {
	Workers int  `json:"workers"`
	Whole   bool `json:"whole"`           // a worker makes whole batches
	Turns   bool `json:"turns,omitempty"` // worker k of n makes the steps k, k+n, k+2n ...
	IDs     bool `json:"ids,omitempty"`   // there are no workers: batches have only ids, and the client looks samples up
	// Iterates: each worker iterates a copy of the dataset of its own, and a position is a
	// turn of theirs. A batch's Structure is what its worker said of it.
	Iterates bool `json:"iterates,omitempty"`
	// Begins are the datasets of a mixture whose samples the engine begins.
	Begins []Begins `json:"begins,omitempty"`
}

// Begins is the Spec of a dataset of a mixture, for its samples alone: workers go on with
// them.
type Begins struct {
	Member int             `json:"member"` // number of the dataset
	Spec   json.RawMessage `json:"spec"`
}

// Point is where a worker's iteration of a dataset begins: after so many of its batches, of
// the last of which Told is the Structure.
type Point struct {
	After int64  `json:"after"`
	Told  []byte `json:"told,omitempty"`
}

// Death is a worker that ended, and the sample that it was making; -1: none.
type Death struct {
	PID    int   `json:"pid"`
	Sample int64 `json:"sample"`
	Stuck  bool  `json:"stuck,omitempty"` // the engine ended it
	Early  bool  `json:"early,omitempty"` // it had not started to work
}

// Stuck is a worker that has been at one piece of work for a long time.
type Stuck struct {
	PID    int     `json:"pid"`
	Worker int     `json:"worker"`
	What   string  `json:"what"` // it does
	S      float64 `json:"s"`    // seconds
	Text   string  `json:"text"` // its Python stack; "": it did not answer
}

// Field describes one column of batches.
type Field struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`            // image | array | number | bytes | text | json | steps | sent
	DType string `json:"dtype"`           // NumPy's name; "object" for bytes, text and json
	Shape []int  `json:"shape,omitempty"` // of one sample in memory; absent if it depends on the sample; begins with -1 if the first axis differs
	Batch string `json:"batch,omitempty"` // for an array whose samples differ: padded | ragged
	Of    string `json:"of,omitempty"`    // in the column of a padded field's lengths (int64): that field's name
	// ViewOf is the field of the Spec of which this one is a view. Its views follow one
	// another.
	ViewOf string `json:"view_of,omitempty"`
	// Axes is the order of an image in memory: "hwc" or "chw"; View is the order
	// for the user.
	Axes string `json:"axes,omitempty"`
	View string `json:"view,omitempty"`
	// Left says how the client makes the numbers, of type DType, of the bytes that are in
	// memory. Absent: the numbers are there.
	Left *Left `json:"left,omitempty"`
	// Steps is the name of the column, of kind steps, that has what the client does to the
	// bytes of this picture before that: for each sample rows of numbers, as
	// transform.StepNumbers says. Becomes is the rows, columns and channels of the result.
	Steps   string `json:"steps,omitempty"`
	Becomes []int  `json:"becomes,omitempty"`
	// Windows and JPEGs are the names of the columns, of kind sent, with what the client needs
	// to make a row of this picture: numbers, as transform.WindowNumbers says, and a JPEG.
	Windows string `json:"windows,omitempty"`
	JPEGs   string `json:"jpegs,omitempty"`
	// Mix says that the client mixes this field, as Message.Mixed says; DType and Shape are
	// those of the result. Absent: it is mixed already, or not at all.
	Mix *Mix `json:"mix,omitempty"`
}

// Mix is a field that the client mixes.
type Mix struct {
	Label  bool   `json:"label"`  // labels, which become probabilities; otherwise pictures
	Stored string `json:"stored"` // type of the numbers in memory; of pictures with Left, uint8
}

// Left is what the client does to the bytes of pictures. Lists have a number for each
// channel. float32 is byte*scale + bias, product and sum rounded apart; other types are
// made by steps, each of the result of the one before.
type Left struct {
	Scale []float32  `json:"scale,omitempty"`
	Bias  []float32  `json:"bias,omitempty"`
	Steps []LeftStep `json:"steps,omitempty"`
}

// LeftStep is a conversion to a type, after which scale multiplies by float32(1.0/255), or
// it subtracts mean and divides by std, rounding both results to the type of the numbers.
type LeftStep struct {
	To    string    `json:"to,omitempty"`
	Scale bool      `json:"scale,omitempty"`
	Mean  []float32 `json:"mean,omitempty"`
	Std   []float32 `json:"std,omitempty"`
}

// Column is where one field of a batch is in its slot. A dense column has
// Rows*Shape elements at Off; a padded one too, with the Shape of this batch. An
// object column has Rows+1 int64 offsets (bytes, relative to Data) at Off and the
// bytes at Data. A ragged column has Rows+1 int64 offsets (steps of the first axis)
// at Off, and at Data its values; Shape is that of one step.
type Column struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"` // ragged, or the field's kind
	Off   int64  `json:"off"`
	Shape []int  `json:"shape,omitempty"` // of one sample, if dense
	Rows  int    `json:"rows,omitempty"`  // dense: number of rows, if not the batch's
	Data  int64  `json:"at,omitempty"`    // for object and ragged columns
}

// Mixed is the choice of MixUp or CutMix for a batch: lambda as drawn, and for CutMix the
// centre of the box, as shares of width and height.
type Mixed struct {
	Number int     `json:"number"` // of the transform in a RandomChoice
	Cut    bool    `json:"cut"`
	Lambda float64 `json:"lambda"`
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
}

// Part is one step of a message for several.
type Part struct {
	Position int64  `json:"position"`
	Sum      string `json:"sum"`
	Real     int64  `json:"real"`
}

// List is a part of an order that the client decided: ids from a place of the epoch
// on, cut into batches if Cuts is set. Items are what the sampler gave if that is not
// plain ids: one for each place, for workers to read. If it is not ids at all, the ids
// are the places. Rank is the number of the process, whose keys are its own.
type List struct {
	IDs   []int64  `json:"ids"`
	Cuts  []int64  `json:"cuts,omitempty"`
	Items [][]byte `json:"items,omitempty"`
	Place int64    `json:"place"`
	Item  int64    `json:"item"`
	Rank  int64    `json:"rank,omitempty"`
}

// Contents is what there was of a dataset when it was indexed. Stamp also changes if a
// file is written again with as many bytes; "": not known.
type Contents struct {
	Samples int64  `json:"samples"`
	Digest  string `json:"digest"`
	Stamp   string `json:"stamp,omitempty"`
}

// Ask is a question about the order of an epoch, or one of its steps.
//
//	steps    batches from position From on
//	items    the places of an epoch (or batches, if the order makes them)
//	sum      the plan's own sum over the items [From, To)
//	shares   samples of each member of a mixture among the items [From, To)
//	explain  the samples of the step that begins at position From, and why
//	verify   what Receipts add up to
//	where    the file of sample From, or its shard and offset
//	changed  how dataset From differs from that of Loader, which was opened before
type Ask struct {
	What     string          `json:"what"`
	Epoch    int64           `json:"epoch"`
	From     int64           `json:"from"`
	To       int64           `json:"to"`
	Receipts json.RawMessage `json:"receipts,omitempty"`
	Loader   int64           `json:"loader,omitempty"`
}

// Suspect is a sample that an engine was working on when it died.
type Suspect struct {
	Loader int64  `json:"loader"` // of the engine that died
	Digest string `json:"digest"` // of the dataset
	Sample int64  `json:"sample"`
	Deaths int    `json:"deaths"`
}

// BadPlace is one sample that was not delivered as ordered.
type BadPlace struct {
	Place  int64  `json:"place"`
	Sample int64  `json:"sample"`
	Put    int64  `json:"put"` // the sample that was delivered instead
	Error  *Error `json:"error"`
}

// Error is an errs.Error on the wire. Exception is the Python class.
type Error struct {
	Code      errs.Code  `json:"code"`
	Exception string     `json:"exception"`
	What      string     `json:"what"`
	Where     errs.Where `json:"where"`
	Cause     string     `json:"cause,omitempty"`
	Hint      string     `json:"hint,omitempty"`
	// Python is the exception of the user's code that caused it, pickled, in base64; Text
	// is what Python prints of it, Kind the name of its type.
	Python string `json:"python,omitempty"`
	Text   string `json:"text,omitempty"`
	Kind   string `json:"kind,omitempty"`
}

// Line is the error as one line of a list: the location, what is wrong there, and why.
func (e *Error) Line() string {
	line := fmt.Sprintf("%s: %s", e.Where, errs.Plain(e.What))
	if e.Cause != "" {
		line += ": " + errs.Plain(e.Cause)
	}
	return line
}

// FromError converts err to its form in messages.
func FromError(err error) *Error {
	e := errs.From(err)
	out := &Error{Code: e.Code, Exception: errs.Classes[e.Code].Python, What: errs.Shown(e.What), Where: e.Where, Hint: errs.Shown(e.Hint)}
	out.Where.File, out.Where.Shard, out.Where.Member = errs.Shown(e.Where.File), errs.Shown(e.Where.Shard), errs.Shown(e.Where.Member)
	if e.Cause != nil {
		out.Cause = errs.Shown(e.Cause.Error())
	}
	var code *errs.CodeError
	if errors.As(e.Cause, &code) {
		out.Python, out.Text, out.Kind, out.Cause = code.Pickle, code.Text, code.Kind, ""
	}
	return out
}

// where is errs.Where with names that may have any bytes.
type where struct {
	File   jsontext.Name `json:"file,omitempty"`
	Shard  jsontext.Name `json:"shard,omitempty"`
	Member jsontext.Name `json:"member,omitempty"`
	Field  jsontext.Name `json:"field,omitempty"`
	Offset errs.Number   `json:"offset"`
	Sample errs.Number   `json:"sample"`
	Worker errs.Number   `json:"worker,omitzero"`
	*errs.Moment
}

// told is the JSON form of an Error.
type told struct {
	Code      errs.Code `json:"code"`
	Exception string    `json:"exception"`
	What      string    `json:"what"`
	Where     where     `json:"where"`
	Cause     string    `json:"cause,omitempty"`
	Hint      string    `json:"hint,omitempty"`
	Python    string    `json:"python,omitempty"`
	Text      string    `json:"text,omitempty"`
	Kind      string    `json:"kind,omitempty"`
}

// MarshalJSON writes locations as names, and sentences with all bytes visible.
func (e Error) MarshalJSON() ([]byte, error) {
	w := e.Where
	return json.Marshal(told{
		e.Code, e.Exception, visible(e.What),
		where{jsontext.Name(w.File), jsontext.Name(w.Shard), jsontext.Name(w.Member), jsontext.Name(w.Field), w.Offset, w.Sample, w.Worker, w.Moment},
		visible(e.Cause), visible(e.Hint), e.Python, e.Text, e.Kind,
	})
}

// visible is a text with bytes that are not UTF-8 escaped.
func visible(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return errs.Plain(s)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (e *Error) UnmarshalJSON(b []byte) error {
	var t told
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	w := t.Where
	*e = Error{
		t.Code, t.Exception, t.What,
		errs.Where{File: string(w.File), Shard: string(w.Shard), Member: string(w.Member), Field: string(w.Field), Offset: w.Offset, Sample: w.Sample, Worker: w.Worker, Moment: w.Moment},
		t.Cause, t.Hint, t.Python, t.Text, t.Kind,
	}
	return nil
}

// Append appends m to b as one frame.
func Append(b []byte, m *Message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return b, fmt.Errorf("wire: %w", err)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

// A BadMessage is a complete frame whose message cannot be decoded. The frames
// after it can be read.
type BadMessage struct {
	Message Message // the part that was decoded: Type and Req, unless it is not JSON
	Key     string  // of the invalid value; "" if the message is not JSON
	Err     error
}

func (e *BadMessage) Error() string { return "wire: " + e.Err.Error() }
func (e *BadMessage) Unwrap() error { return e.Err }

// Read reads one frame. buf is scratch that is grown and returned. After a
// *BadMessage the next frame can be read; any other error ends the stream.
func Read(r io.Reader, buf []byte) (*Message, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, buf, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > MaxFrame {
		return nil, buf, fmt.Errorf("wire: a frame of %d bytes is longer than %d", n, MaxFrame)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) { // inside a frame: not the end of the stream
			err = io.ErrUnexpectedEOF
		}
		return nil, buf, fmt.Errorf("wire: truncated frame: %w", err)
	}
	m := new(Message)
	if err := json.Unmarshal(buf, m); err != nil {
		bad := &BadMessage{Message: *m, Err: err}
		// Decoding continues after a value of the wrong type, so that the number of
		// the request is known even if, for example, its epoch is invalid.
		if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
			bad.Key = kind.Field
		}
		return nil, buf, bad
	}
	return m, buf, nil
}
