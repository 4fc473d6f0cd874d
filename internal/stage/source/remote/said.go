package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Said is a server's error message: the cause of ours.
type Said struct {
	Who     string // "": the server
	Status  int
	Code    string // its word for the error
	Message string // a sentence
}

func (s Said) Error() string {
	who := s.Who
	if who == "" {
		who = "the server"
	}
	text := fmt.Sprintf("%s answered %d", who, s.Status)
	if s.Code != "" {
		text += " " + s.Code
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}

// Short is the same in bounded length, with so many bytes of the code: servers may say
// anything.
func (s Said) Short(code int) Said {
	s.Code, s.Message = Shortened(s.Code, code), Shortened(s.Message, 300)
	return s
}

// Shortened is the beginning of a text of a server's.
func Shortened(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Complaint reads and closes the body of an error, so that the connection can be used
// again. What cannot be read is left out: the status alone says enough.
func Complaint(resp *http.Response) []byte {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return body
}

// Document is what the answers of an API are: JSON or XML of bounded length.
type Document struct {
	Whose  string // "the server's answer"
	Kind   string // "the JSON of the API"
	Most   int    // bytes
	Decode func(text []byte, into any) error
}

// Read reads an answer about the object name, and closes it. refused is the error of one
// whose status is not 200.
func (d Document) Read(ctx context.Context, name string, resp *http.Response, into any, refused func() error) error {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused()
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(d.Most)+1))
	if err != nil {
		return Failed(ctx, name, err)
	}
	if len(body) > d.Most {
		return broken("%s is longer than allowed", d.Whose)
	}
	if err := d.Decode(body, into); err != nil {
		f := broken("%s is not %s", d.Whose, d.Kind)
		f.Cause = err
		return f
	}
	return nil
}
