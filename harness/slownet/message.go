package slownet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
	"strings"
)

// message is the head of a request or an answer. What is not changed leaves as it came.
type message struct {
	first  string // the first line
	fields []field
}

// field is a line of a header. Its name and value are as they came, but for the space
// around the value.
type field struct{ name, value string }

// largestHead is the most that a head may have.
const largestHead = 1 << 20

var errHead = errors.New("slownet: not a head of HTTP/1.1")

// readMessage reads a head. io.EOF: nothing more came.
func readMessage(r *bufio.Reader) (*message, error) {
	m, size := &message{}, 0
	for {
		line, err := readLine(r, largestHead-size)
		if err != nil {
			if err == io.EOF && size > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		size += len(line) + 2
		switch {
		case m.first == "" && line == "": // before a request, some clients send an empty line
		case m.first == "":
			m.first = line
		case line == "":
			return m, nil
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok || name == "" || strings.ContainsAny(name, " \t") {
				return nil, errHead
			}
			m.fields = append(m.fields, field{name, strings.Trim(value, " \t")})
		}
	}
}

func readLine(r *bufio.Reader, most int) (string, error) {
	var long []byte
	for {
		b, err := r.ReadSlice('\n')
		if len(long)+len(b) > most {
			return "", errHead
		}
		if err == bufio.ErrBufferFull {
			long = append(long, b...)
			continue
		}
		if err != nil {
			if err == io.EOF && len(long)+len(b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if long != nil {
			b = append(long, b...)
		}
		b = b[:len(b)-1]
		if n := len(b); n > 0 && b[n-1] == '\r' {
			b = b[:n-1]
		}
		return string(b), nil
	}
}

// bytes is the head as it is sent.
func (m *message) bytes() []byte {
	out := make([]byte, 0, 1024)
	out = append(append(out, m.first...), "\r\n"...)
	for _, f := range m.fields {
		out = append(append(append(append(out, f.name...), ": "...), f.value...), "\r\n"...)
	}
	return append(out, "\r\n"...)
}

// get is the first value of a header, or "".
func (m *message) get(name string) string {
	for _, f := range m.fields {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

func (m *message) has(name string) bool {
	for _, f := range m.fields {
		if strings.EqualFold(f.name, name) {
			return true
		}
	}
	return false
}

// set changes a header in its place, or appends it.
func (m *message) set(name, value string) {
	for i, f := range m.fields {
		if strings.EqualFold(f.name, name) {
			m.fields[i].value = value
			return
		}
	}
	m.fields = append(m.fields, field{name, value})
}

func (m *message) remove(name string) {
	var kept []field
	for _, f := range m.fields {
		if !strings.EqualFold(f.name, name) {
			kept = append(kept, f)
		}
	}
	m.fields = kept
}

// keeps says whether the connection stays open after the message.
func (m *message) keeps() bool {
	said := strings.ToLower(m.get("Connection"))
	if strings.Contains(m.first, "HTTP/1.1") {
		return !strings.Contains(said, "close")
	}
	return strings.Contains(said, "keep-alive")
}

// status is the status of an answer; 0: this is not an answer.
func (m *message) status() int {
	proto, rest, _ := strings.Cut(m.first, " ")
	code, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(code)
	if err != nil || !strings.HasPrefix(proto, "HTTP/1.") {
		return 0
	}
	return n
}

// body is what follows a head.
type body struct {
	io.Reader       // nil: there is none
	size      int64 // -1: not known before its end
	chunked   bool  // it has lengths of its own
	toEnd     bool  // it ends with the connection
}

// none is the body of a message without one.
func none() body { return body{} }

// bodyOf finds the body after a head: of a request, or of the answer to one by a method.
func (m *message) bodyOf(r *bufio.Reader, answerTo string) (body, error) {
	status := m.status()
	if answerTo != "" && (answerTo == "HEAD" || status < 200 || status == 204 || status == 304) {
		return none(), nil
	}
	if strings.EqualFold(m.get("Transfer-Encoding"), "chunked") {
		return body{Reader: httputil.NewChunkedReader(r), size: -1, chunked: true}, nil
	}
	if said := m.get("Content-Length"); said != "" {
		n, err := strconv.ParseInt(said, 10, 64)
		if err != nil || n < 0 {
			return none(), errHead
		}
		if n == 0 {
			return none(), nil
		}
		return body{Reader: io.LimitReader(r, n), size: n}, nil
	}
	if answerTo == "" {
		return none(), nil
	}
	return body{Reader: r, size: -1, toEnd: true}, nil
}

// readTrailer reads what follows the last chunk, with its empty line.
func readTrailer(r *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		line, err := readLine(r, largestHead-len(out))
		if err != nil {
			return nil, err
		}
		if out = append(append(out, line...), "\r\n"...); line == "" {
			return out, nil
		}
	}
}

// contentRange reads "bytes 0-99/1000".
func contentRange(s string) (from, to, size int64, ok bool) {
	n, err := fmt.Sscanf(s, "bytes %d-%d/%d", &from, &to, &size)
	return from, to, size, n == 3 && err == nil
}

// chunkHead begins a chunk of the chunked encoding.
func chunkHead(n int) []byte { return fmt.Appendf(nil, "%x\r\n", n) }
