package spec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Numbers is one number per sample: a list in the Spec, or the path of a .npy file
// (one dimension of float64, float32, int64, int32 or uint8), which is read when
// the loader opens.
type Numbers struct {
	List []float64
	File string
}

// Lengths is the length of every sample: Numbers, or the name of the stored field
// whose bytes are counted.
type Lengths struct {
	Numbers
	Field string
}

// Len is the length of a list, and 1 for a file.
func (n Numbers) Len() int {
	if n.File != "" {
		return 1
	}
	return len(n.List)
}

// IsZero reports whether nothing was given.
func (n Numbers) IsZero() bool { return n.List == nil && n.File == "" }

// IsZero reports whether nothing was given.
func (l Lengths) IsZero() bool { return l.Numbers.IsZero() && l.Field == "" }

// UnmarshalJSON reads a list or the path of a .npy file.
func (n *Numbers) UnmarshalJSON(b []byte) error {
	*n = Numbers{}
	if json.Unmarshal(b, &n.File) == nil {
		return nil
	}
	if err := json.Unmarshal(b, &n.List); err != nil {
		return errs.New(errs.Config, "not a list of numbers or the path of a .npy file: %s", err)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (n Numbers) MarshalJSON() ([]byte, error) {
	if n.File != "" {
		return json.Marshal(jsontext.Name(n.File))
	}
	return json.Marshal(n.List)
}

// UnmarshalJSON reads a list, a path that ends in .npy or begins with /, or the
// name of a field.
func (l *Lengths) UnmarshalJSON(b []byte) error {
	*l = Lengths{}
	if err := l.Numbers.UnmarshalJSON(b); err != nil {
		return err
	}
	if l.File != "" && !strings.HasSuffix(l.File, ".npy") && !strings.HasPrefix(l.File, "/") {
		l.Field, l.File = l.File, ""
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (l Lengths) MarshalJSON() ([]byte, error) {
	if l.Field != "" {
		return json.Marshal(l.Field)
	}
	return l.Numbers.MarshalJSON()
}

// Read returns the numbers.
func (n Numbers) Read() ([]float64, error) {
	if n.File == "" {
		return n.List, nil
	}
	raw, err := source.ReadFile(n.File)
	if err != nil {
		return nil, errs.New(errs.Config, "cannot read the numbers in %s", n.File).Because(err)
	}
	out, err := parseNPY(raw)
	if err != nil {
		return nil, errs.New(errs.Config, "%s is not a .npy file with one number per sample", n.File).Because(err).
			Try("save it with numpy.save(path, weights), where weights has one dimension")
	}
	return out, nil
}

// parseNPY reads a .npy file of one dimension: NumPy's NEP 1, versions 1 to 3.
func parseNPY(b []byte) ([]float64, error) {
	if len(b) < 12 || !bytes.HasPrefix(b, []byte("\x93NUMPY")) {
		return nil, errors.New("it does not begin with the .npy signature")
	}
	at, size := 10, int(binary.LittleEndian.Uint16(b[8:]))
	if b[6] > 1 {
		at, size = 12, int(binary.LittleEndian.Uint32(b[8:]))
	}
	if size < 0 || size > len(b)-at {
		return nil, io.ErrUnexpectedEOF
	}
	head, data := string(b[at:at+size]), b[at+size:]
	kind := between(head, "'descr': '", "'")
	n, err := strconv.Atoi(strings.TrimSuffix(between(head, "'shape': (", ")"), ","))
	if err != nil {
		return nil, fmt.Errorf("its shape is (%s)", between(head, "'shape': (", ")"))
	}
	read, width := reader(kind)
	if read == nil {
		return nil, fmt.Errorf("its numbers are of type %q: only float64, float32, int64, int32 and uint8 are read", kind)
	}
	if n < 0 || len(data)/width < n {
		return nil, io.ErrUnexpectedEOF
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = read(data[i*width:])
	}
	return out, nil
}

// reader returns a function that reads one number of a NumPy type, and the type's
// size in bytes.
func reader(kind string) (func([]byte) float64, int) {
	le := binary.LittleEndian
	switch kind {
	case "<f8":
		return func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }, 8
	case "<f4":
		return func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }, 4
	case "<i8":
		return func(b []byte) float64 { return float64(int64(le.Uint64(b))) }, 8
	case "<i4":
		return func(b []byte) float64 { return float64(int32(le.Uint32(b))) }, 4
	case "|u1":
		return func(b []byte) float64 { return float64(b[0]) }, 1
	}
	return nil, 0
}

// between is the text between open and end; "" if they are missing.
func between(s, open, end string) string {
	_, s, _ = strings.Cut(s, open)
	s, _, _ = strings.Cut(s, end)
	return s
}
