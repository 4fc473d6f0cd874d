package remote

import (
	"context"
	"net"
	"net/url"
	"sync"
	"time"
)

// Bearer is a token of limited life that all requests of a store share: it is kept until
// shortly before it expires, and asked for once however many requests need it. Safe for
// concurrent use.
type Bearer struct {
	// Get asks for a new token, in a context that no single request ends; "": requests
	// have none. refused is the token that was not accepted, if that is why: a library may
	// have it in a cache. until is when the token expires; zero: never. An error is one of
	// an attempt's, as in Store.
	Get func(ctx context.Context, refused string) (token string, until time.Time, err error)

	mu     sync.Mutex
	have   bool      // there is a token, which may be ""
	token  string    // refused, if there is none
	until  time.Time // when the next is asked for; zero: never
	asking *asking   // nil: nobody asks
}

// asking is a call of Get that requests wait for.
type asking struct {
	done  chan struct{}
	token string
	err   error
}

const (
	early  = 2 * time.Minute  // before a token expires, another is asked for
	getFor = 30 * time.Second // how long a call of Get may take
	// keepFor is how long a token is kept whatever it says of itself: where the clock is
	// hours ahead, each would look expired. One that has expired is Refused.
	keepFor = 30 * time.Second
)

// Token returns a token that is good for now.
func (b *Bearer) Token(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	b.mu.Lock()
	if b.have && (b.until.IsZero() || time.Now().Before(b.until)) {
		defer b.mu.Unlock()
		return b.token, nil
	}
	a := b.asking
	if a == nil {
		a = &asking{done: make(chan struct{})}
		b.asking = a
		go b.ask(context.WithoutCancel(ctx), a, b.unaccepted())
	}
	b.mu.Unlock()
	select {
	case <-a.done:
		return a.token, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// unaccepted is the token that was refused; the caller has the lock.
func (b *Bearer) unaccepted() string {
	if b.have { // it has expired
		return ""
	}
	return b.token
}

func (b *Bearer) ask(ctx context.Context, a *asking, refused string) {
	ctx, cancel := context.WithTimeout(ctx, getFor)
	defer cancel()
	token, until, err := b.Get(ctx, refused)
	if ctx.Err() != nil && err != nil {
		err = &Fault{Kind: Unreachable, What: "no token arrived in time", Cause: err}
	}
	if !until.IsZero() { // a short life is not all spent on asking
		until = until.Add(-min(early, time.Until(until)/10))
		if least := time.Now().Add(keepFor); until.Before(least) {
			until = least
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.token, a.err = token, err; err == nil {
		b.token, b.until, b.have = token, until, true
	}
	b.asking = nil
	close(a.done)
}

// Refused says that a server does not accept a token, so that another is asked for. What
// is no longer the token is ignored: another request has said so before.
func (b *Bearer) Refused(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if token == b.token {
		b.have = false
	}
}

// Private says whether what is sent to an address is read by nobody else: a token goes to
// this machine, or over TLS.
func Private(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
