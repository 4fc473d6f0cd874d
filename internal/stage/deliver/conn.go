package deliver

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/wire"
)

// Conn is the engine's end of the socket: frames, with the descriptors that they
// carry. Read has one caller. Write is safe for concurrent use, and keeps the
// messages of one call together.
type Conn struct {
	sock *net.UnixConn
	in   *bufio.Reader
	buf  []byte

	mu  sync.Mutex
	out []byte
}

// NewConn takes over an inherited descriptor of a stream socket.
func NewConn(fd int) (*Conn, error) {
	f := os.NewFile(uintptr(fd), "client")
	if f == nil {
		return nil, fmt.Errorf("deliver: descriptor %d is not open", fd)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("deliver: descriptor %d: %w", fd, err)
	}
	sock, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("deliver: the inherited descriptor is not a Unix socket")
	}
	return &Conn{sock: sock, in: bufio.NewReader(sock)}, nil
}

// Read is the client's next message.
func (c *Conn) Read() (*wire.Message, error) {
	m, buf, err := wire.Read(c.in, c.buf)
	c.buf = buf
	return m, err
}

// Envelope is a message with the descriptors that it names.
type Envelope struct {
	Message *wire.Message
	FDs     []int
}

// Write sends messages one after the other. The descriptors stay open and belong to
// the caller.
func (c *Conn) Write(messages ...Envelope) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range messages {
		b, err := wire.Append(c.out[:0], e.Message)
		if err != nil {
			return err
		}
		c.out = b
		var oob []byte
		if len(e.FDs) > 0 {
			oob = unix.UnixRights(e.FDs...)
		}
		n, _, err := c.sock.WriteMsgUnix(b, oob, nil)
		if err == nil && n < len(b) {
			_, err = c.sock.Write(b[n:])
		}
		if err != nil {
			return fmt.Errorf("deliver: the client's socket: %w", err)
		}
	}
	return nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.sock.Close() }
