package deliver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
	oob  []byte
	fds  []int // that came, and were not taken

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
	conn := &Conn{sock: sock, oob: make([]byte, unix.CmsgSpace(4*most))}
	conn.in = bufio.NewReader(descriptors{conn})
	return conn, nil
}

// descriptors reads a socket and keeps the descriptors that come with the bytes. Package
// net makes them close on exec.
type descriptors struct{ c *Conn }

// most is how many descriptors come with one read at most.
const most = 16

func (d descriptors) Read(b []byte) (int, error) {
	n, oobn, _, _, err := d.c.sock.ReadMsgUnix(b, d.c.oob)
	n = max(n, 0) // -1 with an error, which bufio takes for a bug
	if oobn > 0 {
		all, parseErr := unix.ParseSocketControlMessage(d.c.oob[:oobn])
		if parseErr != nil {
			return n, fmt.Errorf("deliver: control message: %w", parseErr)
		}
		for i := range all {
			if fds, err := unix.ParseUnixRights(&all[i]); err == nil {
				d.c.fds = append(d.c.fds, fds...)
			}
		}
	}
	if n == 0 && err == nil && len(b) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Take is the oldest descriptor that came and was not taken, now the caller's; false:
// none. Like Read it has one caller.
func (c *Conn) Take() (int, bool) {
	if len(c.fds) == 0 {
		return -1, false
	}
	fd := c.fds[0]
	c.fds = c.fds[1:]
	return fd, true
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
