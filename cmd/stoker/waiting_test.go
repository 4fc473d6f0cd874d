package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// A command says what it waits for while a server does not answer: in a line, or in one of
// JSON if machines read what it writes. Standard output has nothing of it.
func TestCommandsSayWhatTheyWaitFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	for flag, says := range map[string]string{
		"--check=1": "stoker: " + at + " does not answer: 1 request has waited for ",
		"--json":    `{"waiting":"` + at + ` does not answer: 1 request has waited for `,
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var out bytes.Buffer
			first := &firstLine{then: cancel}
			status := run(ctx, []string{"inspect", "http://" + at + "/a.tar", flag}, &out, first)
			if status != 130 || out.Len() > 0 || !strings.HasPrefix(first.String(), says) || !strings.Contains(first.String(), "the connection was refused") {
				t.Errorf("exit %d, output %q, errors:\n%s", status, &out, first)
			}
		})
	}
}

// firstLine keeps what is written, and does something when there is any.
type firstLine struct {
	mu   sync.Mutex
	text bytes.Buffer
	then func()
}

func (f *firstLine) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.then()
	return f.text.Write(b)
}

func (f *firstLine) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}
