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
	hushed = 5 * time.Second  // nothing is said of a silence that is shorter
	every  = 10 * time.Second // between two lines about one wait
)

// Waiting says which host requests have waited for longest, since when and why; "": none
// for so long that it is worth a line. Hosts whose requests failed, and wait to be made again,
// come before hosts that are silent. It can be shown as it is, whatever a server said.
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
	have := "requests have"
	if worst.Requests == 1 {
		have = "request has"
	}
	return fmt.Sprintf("%s does not answer: %d %s waited for %s (%s)", worst.Host, worst.Requests, have, errs.InSeconds(time.Since(worst.Since).Round(time.Second)), errs.Shown(errs.Plain(strings.Join(strings.Fields(worst.Last), " "))))
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
	wait := "1 request waits"
	if requests > 1 {
		wait = fmt.Sprintf("%d requests wait", requests)
	}
	return fmt.Sprintf("%s is silent: nothing has come for %s, and %s", name, errs.InSeconds(longest.Round(time.Second)), wait)
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
