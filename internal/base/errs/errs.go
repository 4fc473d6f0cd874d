// Package errs defines the one form of an error in stoker: a code, what happened,
// where (file, shard, member, offset, sample), the cause, and what to try.
//
// The table Classes maps every code to the exit status of the command line and
// to the Python exception; testdata/errors.json locks it for both languages.
package errs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Code names one kind of failure. It is stable: users and tests match on it.
type Code string

// The codes. A new one gets a row in Classes.
const (
	Bug          Code = "bug"           // a bug in stoker
	Config       Code = "config"        // the request cannot be carried out as written
	NotFound     Code = "not_found"     // a path that does not exist
	Empty        Code = "empty"         // a dataset without samples
	Damaged      Code = "damaged"       // bytes that are not what their format says
	Unsupported  Code = "unsupported"   // valid bytes of a kind that is not supported
	Changed      Code = "changed"       // a file or shard differs from its index
	Forbidden    Code = "forbidden"     // a file that may not be read
	MissingField Code = "missing_field" // a sample without a field that was asked for
	BadLimit     Code = "bad_limit"     // more bad samples than on_bad allows
	Differs      Code = "differs"       // two things that should be equal are not
	Unreadable   Code = "unreadable"    // the source refused or failed
	Unreachable  Code = "unreachable"   // a server could not be reached, or broke off, until the deadline
	Denied       Code = "denied"        // a store refused the credentials, or there are none
	Throttled    Code = "throttled"     // a store refused requests as too many until the deadline
	Memory       Code = "memory"        // a limit on memory
	Held         Code = "held"          // the user holds every slot that memory allows
	Space        Code = "space"         // a disk is full
	Incompatible Code = "incompatible"  // engine and client, or index versions
	State        Code = "state"         // a saved state that does not fit
	Stalled      Code = "stalled"       // nothing moved before the deadline
	Died         Code = "died"          // the engine died too often
)

// Class is how a code is reported to users.
type Class struct {
	Exit   int    // exit status of the command line
	Python string // exception of the Python package
}

// Classes is the table code -> exit status -> Python exception.
var Classes = map[Code]Class{
	Bug:          {1, "EngineError"},
	Config:       {2, "ConfigError"},
	NotFound:     {2, "ConfigError"},
	Empty:        {2, "ConfigError"},
	Damaged:      {3, "DataError"},
	Unsupported:  {3, "DataError"},
	Changed:      {3, "DataError"},
	Forbidden:    {3, "DataError"},
	MissingField: {3, "DataError"},
	BadLimit:     {3, "DataError"},
	Differs:      {4, "DataError"},
	Unreadable:   {5, "SourceError"},
	Unreachable:  {5, "SourceError"},
	Denied:       {5, "SourceError"},
	Throttled:    {5, "SourceError"},
	Memory:       {6, "ResourceError"},
	Held:         {6, "ResourceError"},
	Space:        {6, "ResourceError"},
	Incompatible: {7, "EngineError"},
	State:        {2, "StateError"},
	Stalled:      {8, "StallError"},
	Died:         {1, "EngineError"},
}

// Moment is the position in a run at which a failure came.
type Moment struct {
	Epoch int64 `json:"epoch"`
	Step  int64 `json:"step"`
	Rank  int   `json:"rank"`
}

// Where is the location of a failure. Every field that is zero is unknown.
type Where struct {
	File   string `json:"file,omitempty"`   // a file of a folder dataset, or a path of the user's
	Shard  string `json:"shard,omitempty"`  // the stored file that holds several samples
	Member string `json:"member,omitempty"` // the member of the shard
	Field  string `json:"field,omitempty"`
	Offset Number `json:"offset"`          // bytes from the start of File or Shard
	Sample Number `json:"sample"`          // sample id
	Worker Number `json:"worker,omitzero"` // Python worker that made it, from 0
	*Moment
}

// Number is a number from 0 on, or unknown, which is the zero value. In JSON an
// unknown number is -1.
type Number struct{ next int64 } // one more than the number; 0: unknown

// Known returns n as a Number, which is unknown if n is negative.
func Known(n int64) Number { return Number{max(n, -1) + 1} }

// Get returns the number, and whether it is known.
func (n Number) Get() (int64, bool) { return n.next - 1, n.next != 0 }

// Or returns the number, or unknown if it is not known.
func (n Number) Or(unknown int64) int64 {
	if n.next == 0 {
		return unknown
	}
	return n.next - 1
}

// Equal reports whether both are unknown, or the same number.
func (n Number) Equal(o Number) bool { return n == o }

// String is the number as text, for messages.
func (n Number) String() string { return strconv.FormatInt(n.Or(-1), 10) }

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, n.Or(-1), 10), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(b []byte) error {
	v := int64(-1) // for null
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*n = Known(v)
	return nil
}

func (w Where) String() string {
	var b strings.Builder
	add := func(format string, a ...any) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, format, a...)
	}
	if w.File != "" {
		add("%s", Name(w.File))
	}
	if w.Shard != "" {
		add("shard %s", Name(w.Shard))
	}
	if w.Member != "" {
		add("member %s", Name(w.Member))
	}
	if w.Field != "" {
		add("field %q", w.Field)
	}
	if n, known := w.Offset.Get(); known {
		add("offset %d", n)
	}
	if n, known := w.Sample.Get(); known {
		add("sample %d", n)
	}
	if n, known := w.Worker.Get(); known {
		add("worker %d", n)
	}
	if w.Moment != nil {
		add("epoch %d, step %d, rank %d", w.Epoch, w.Step, w.Rank)
	}
	return b.String()
}

// beside is w without its file, if text, which comes before it, quotes the file already.
func (w Where) beside(text string) Where {
	if w.File != "" && strings.Contains(Shown(text), strconv.Quote(Shown(w.File))) {
		w.File = ""
	}
	return w
}

// Error is the only type of error that users see.
type Error struct {
	Code  Code
	What  string // one sentence: what happened
	Where Where
	Cause error  // may be nil
	Hint  string // what to try
}

// New makes an error without a location.
func New(code Code, format string, a ...any) *Error {
	return &Error{Code: code, What: fmt.Sprintf(format, a...)}
}

// At sets the location and returns e.
func (e *Error) At(w Where) *Error { e.Where = w; return e }

// Because sets the cause and returns e.
func (e *Error) Because(err error) *Error { e.Cause = err; return e }

// Try sets the hint and returns e.
func (e *Error) Try(format string, a ...any) *Error { e.Hint = fmt.Sprintf(format, a...); return e }

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(Plain(e.What))
	if w := e.Where.beside(e.What).String(); w != "" {
		b.WriteString(" (" + w + ")")
	}
	if e.Cause != nil && e.Cause.Error() != "" {
		b.WriteString(": " + Plain(e.Cause.Error()))
	}
	return Shown(b.String())
}

func (e *Error) Unwrap() error { return e.Cause }

// CodeError is an exception that the user's own code raised, as the cause of an Error;
// or the end of the processes that ran it.
type CodeError struct {
	Kind      string // name of its type; Ended
	Text      string // with the traceback
	Pickle    string // the exception itself for Python, in base64; "": it cannot be pickled
	Skippable bool   // on_bad may skip the sample
}

// Ended is the Kind of a sample at which processes ended. It has no text.
const Ended = "ended"

// Many is n things: "1 sample", "20 samples".
func Many[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(int64(n), 10) + " " + one + "s"
}

// InSeconds is d for a sentence: "0.5 s", "60 s".
func InSeconds(d time.Duration) string {
	tenths := math.Round(d.Seconds() * 10)
	if tenths >= 100 || tenths == math.Trunc(tenths/10)*10 {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func (e *CodeError) Error() string { return e.Text }

// From returns err as an *Error: itself if it is one, else a Bug that wraps it.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return New(Bug, "an unexpected error").Because(err).Try("please report this with the steps that lead to it")
}

// CodeOf is From(err).Code.
func CodeOf(err error) Code { return From(err).Code }
