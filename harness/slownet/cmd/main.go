// Command slownet runs the proxy of package slownet for tests that are not written in Go,
// and for shells. Once it serves, it prints one line of JSON:
//
//	{"address": "127.0.0.1:40001", "url": "http://127.0.0.1:40001", "control": "http://127.0.0.1:40002", "pid": 123}
//
// It ends when it gets a signal, when its parent ends, or when its standard input ends, if
// that is a pipe. Proxy.Control documents the control address.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/harness/slownet"
)

type command struct {
	Server string `arg:"" help:"The server: http://HOST:PORT, https://HOST:PORT, or tcp://HOST:PORT for bytes that are not looked into."`

	Listen    string `default:"127.0.0.1:0" help:"Where clients connect."`
	ControlAt string `name:"control" default:"127.0.0.1:0" help:"Where the proxy is controlled."`
	Cert      string `help:"A certificate (PEM), to speak TLS to clients." type:"existingfile"`
	Key       string `help:"Its key (PEM)." type:"existingfile"`
	ServerCA  string `name:"server-ca" help:"The roots that an https server is trusted by (PEM)." type:"existingfile"`
	Host      string `help:"The Host that the server is told, in place of the client's."`

	Latency    time.Duration `help:"From a request to the first byte of its answer."`
	Connection slownet.Rate  `help:"Bytes a second of each connection, as 90MB/s."`
	Total      slownet.Rate  `help:"Bytes a second of all connections."`
	Requests   float64       `help:"More requests a second are answered 503 SlowDown."`
	Burst      int           `help:"How many of them may come at once; 0: a tenth of a second's."`
	Status     int           `help:"The answer to the others, in place of 503."`
	Code       string        `help:"Its code, in place of SlowDown; plain: no such body."`
	RetryAfter time.Duration `help:"Its Retry-After."`

	Rule []string `sep:"none" help:"A rule, such as 'range *.tar #3 reset=1000'; may be repeated."`
	Seed uint64   `help:"Of the random choices of rules."`
}

func (c command) run(ctx context.Context, out io.Writer) error {
	o := slownet.Options{
		Server: c.Server, Listen: c.Listen, Host: c.Host, Rules: c.Rule, Seed: c.Seed,
		Link: slownet.Link{
			Latency: c.Latency, Connection: c.Connection, Total: c.Total, Requests: c.Requests, Burst: c.Burst,
			Excess: slownet.Excess{Status: c.Status, Code: c.Code, RetryAfter: c.RetryAfter},
		},
	}
	if c.Cert != "" || c.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return err
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	}
	if c.ServerCA != "" {
		pem, err := os.ReadFile(c.ServerCA)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no certificate", c.ServerCA)
		}
		o.ServerTLS = &tls.Config{RootCAs: roots}
	}
	p, err := slownet.New(o)
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := net.Listen("tcp", c.ControlAt)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: p.Control(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer s.Close()
	if err := json.NewEncoder(out).Encode(map[string]any{
		"address": p.Addr(), "url": p.URL(), "control": "http://" + l.Addr().String(), "pid": os.Getpid(),
	}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		return err
	}
}

// whileWanted cancels when the parent process ends, or when standard input ends if that is a
// pipe or a socket. A background command of a shell has /dev/null instead.
func whileWanted(cancel context.CancelFunc) error {
	if parent := os.Getppid(); parent > 0 { // 0: outside the container
		fd, err := unix.PidfdOpen(parent, 0)
		if err != nil {
			return fmt.Errorf("cannot watch the parent process: %w", err)
		}
		go func() {
			defer cancel()
			for os.Getppid() == parent {
				if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); n > 0 || !errors.Is(err, unix.EINTR) {
					return
				}
			}
		}()
	}
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, os.Stdin)
		}()
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var c command
	k := kong.Parse(&c, kong.Name("slownet"), kong.Description("A proxy that is as slow, and as broken, as requested."))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := whileWanted(cancel)
	if err == nil {
		err = c.run(ctx, os.Stdout)
	}
	k.FatalIfErrorf(err)
}
