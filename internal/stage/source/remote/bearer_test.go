package remote_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// A token is asked for shortly before it expires. Where the clock says that each has expired
// when it comes, one is kept for a while all the same, unless it is refused.
func TestTokens(t *testing.T) {
	for what, c := range map[string]struct {
		life, first, second time.Duration // at first, the token is the same; at second it is not
	}{
		"an hour":               {time.Hour, 50 * time.Minute, 59 * time.Minute},
		"a clock that is late":  {10 * time.Hour, 9 * time.Hour, 10 * time.Hour},
		"a clock that is ahead": {-3 * time.Hour, 29 * time.Second, 31 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				b := remote.Bearer{Get: func(context.Context, string) (string, time.Time, error) {
					asked++
					return fmt.Sprint("token ", asked), time.Now().Add(c.life), nil
				}}
				begin := time.Now()
				for _, want := range []struct {
					at    time.Duration
					token string
				}{{0, "token 1"}, {c.first, "token 1"}, {c.second, "token 2"}} {
					time.Sleep(want.at - time.Since(begin))
					if token, err := b.Token(t.Context()); token != want.token || err != nil {
						t.Errorf("after %s: %s, %v", want.at, token, err)
					}
				}
				b.Refused("token 2")
				if token, err := b.Token(t.Context()); token != "token 3" || err != nil {
					t.Errorf("after one was refused: %s, %v", token, err)
				}
			})
		})
	}
}
