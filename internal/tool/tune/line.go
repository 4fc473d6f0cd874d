package tune

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Line is the conversation with a process that measures its own loaders, in lines
// of JSON both ways. It begins with an Ask; then come a question and an answer for
// every measurement:
//
//	<- {"measure": {"num_workers": 4, "prefetch": 2, ...}, "seconds": 5}
//	-> {"figures": {"samples_per_second": 812.5, ...}}  or  {"failed": "why"}
//
// and finally {"report": ...} with the text for people.
type Line struct {
	in  *bufio.Scanner
	out io.Writer
}

// Ask is the request of the process.
type Ask struct {
	Subject
	Space    Space   `json:"space"`
	Budget   float64 `json:"budget_s"`
	Playbook string  `json:"playbook"` // path; "": do not write one
	Plot     string  `json:"plot"`     // path without extension; "": do not draw one
}

// LineError is a conversation that broke off.
type LineError struct{ err error }

func (e *LineError) Error() string {
	return "tune: the measuring process is gone: " + e.err.Error()
}

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.err }

// maxLine is larger than any line, in bytes.
const maxLine = 1 << 20

// Listen begins a conversation.
func Listen(in io.Reader, out io.Writer) (*Line, Ask, error) {
	l := &Line{in: bufio.NewScanner(in), out: out}
	l.in.Buffer(nil, maxLine)
	var ask Ask
	return l, ask, l.read(&ask)
}

func (l *Line) read(v any) error {
	if !l.in.Scan() {
		err := l.in.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return &LineError{err}
	}
	dec := json.NewDecoder(bytes.NewReader(l.in.Bytes()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return &LineError{fmt.Errorf("a line is not an answer: %w", err)}
	}
	return nil
}

// Say writes one line.
func (l *Line) Say(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.out.Write(append(b, '\n'))
	}
	if err != nil {
		return &LineError{err}
	}
	return nil
}

// Measure implements Meter.
func (l *Line) Measure(ctx context.Context, s Settings, about time.Duration) (Figures, error) {
	if err := l.Say(map[string]any{"measure": s, "seconds": about.Seconds()}); err != nil {
		return Figures{}, err
	}
	var answer struct {
		Figures *Figures `json:"figures"`
		Failed  string   `json:"failed"`
	}
	read := make(chan error, 1)
	go func() { read <- l.read(&answer) }()
	select {
	case err := <-read:
		if err != nil {
			return Figures{}, err
		}
	case <-ctx.Done(): // the reader ends with the process
		return Figures{}, ctx.Err()
	}
	if answer.Figures == nil {
		return Figures{}, errors.New(answer.Failed)
	}
	return *answer.Figures, nil
}
