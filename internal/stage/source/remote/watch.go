package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

const (
	quiet  = 2 * time.Second  // nothing is said of a wait that is shorter
	hushed = 5 * time.Second  // nor of a silence
	every  = 10 * time.Second // between two lines about one wait
)

// Waiting says which host requests have waited for longest, since when and why; "": none
// for so long that it is worth a line. Requests that failed, and wait to be made again, come
// before those that are silent. It can be shown as it is, whatever a server said.
func (n *Net) Waiting() string {
	if line := n.failing(); line != "" {
		return line
	}
	return n.silent()
}

func (n *Net) failing() string {
	var worst Trouble
	for _, t := range n.Troubles() {
		if worst.Requests == 0 || t.Since.Before(worst.Since) {
			worst = t
		}
	}
	if worst.Requests == 0 || time.Since(worst.Since) < quiet {
		return ""
	}
	return fmt.Sprintf("%s does not answer: %s waited for %s (%s)", worst.Host, requestsHave(worst.Requests), errs.InSeconds(time.Since(worst.Since).Round(time.Second)), errs.Shown(errs.Plain(strings.Join(strings.Fields(worst.Last), " "))))
}

func (n *Net) silent() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, requests, longest := "", 0, hushed
	for _, h := range n.hosts {
		if count, length := h.silent(time.Now()); length >= longest && n.uses(h) {
			name, requests, longest = h.name, count, length
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%s is silent: %s waited for its answer for %s", name, requestsHave(requests), errs.InSeconds(longest.Round(time.Second)))
}

func requestsHave(n int) string {
	if n == 1 {
		return "1 request has"
	}
	return fmt.Sprintf("%d requests have", n)
}

// Watch says until ctx ends what requests wait for, while they do.
func (n *Net) Watch(ctx context.Context, say func(line string)) {
	check := time.NewTicker(time.Second)
	defer check.Stop()
	var said time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-check.C:
			if now.Sub(said) < every {
				continue
			}
			if line := n.Waiting(); line != "" {
				said = now
				say(line)
			}
		}
	}
}
