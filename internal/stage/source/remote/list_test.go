package remote_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// pages is a store whose listing is what a function says.
type pages struct {
	*link
	page  func(n int) remote.Page
	asked int
}

func (p *pages) Page(context.Context, string, bool, string) (remote.Page, error) {
	p.asked++
	return p.page(p.asked - 1), nil
}

// A listing whose pages go on for ever ends with an error, whatever they have; one with many
// pages without a name does not.
func TestListingsWithoutEnd(t *testing.T) {
	million := make([]source.Info, 1_000_000)
	for i := range million {
		million[i].Name = "mem://d/x"
	}
	of := func(n int) source.Info { return source.Info{Name: fmt.Sprintf("mem://d/%09d", n)} }
	for what, c := range map[string]struct {
		page func(n int) remote.Page
		most int // pages
		says string
	}{
		"empty":    {func(n int) remote.Page { return remote.Page{Next: strconv.Itoa(n)} }, 50_000, "pages without a name"},
		"no order": {func(n int) remote.Page { return remote.Page{Next: strconv.Itoa(n), Entries: million, Loose: true} }, 20, "names in no order"},
		"the same": {func(n int) remote.Page { return remote.Page{Next: "x", Entries: []source.Info{of(n)}} }, 2, "same page twice"},
	} {
		t.Run(what, func(t *testing.T) {
			p := &pages{link: free(), page: func(n int) remote.Page {
				if n > c.most {
					t.Fatalf("%d pages were asked for", n)
				}
				return c.page(n)
			}}
			var last error
			for _, err := range remote.New(p, remote.NewNet(remote.Options{}), source.Access{}).Walk(t.Context(), "mem://d") {
				last = err
			}
			if e := errs.From(last); e.Code != errs.Unreadable || !strings.Contains(e.What, "does not end") || !strings.Contains(e.What, c.says) || e.Where.File != "mem://d" {
				t.Errorf("after %d pages: %v", p.asked, last)
			}
		})
	}

	for _, loose := range []bool{false, true} {
		p := &pages{link: free(), page: func(n int) remote.Page {
			page := remote.Page{Next: strconv.Itoa(n), Loose: loose}
			if n == 3000 || n == 6000 {
				page.Entries = []source.Info{of(n)}
			}
			if n == 9000 {
				page.Next = ""
			}
			return page
		}}
		var got []string
		for it, err := range remote.New(p, remote.NewNet(remote.Options{}), source.Access{}).Walk(t.Context(), "mem://d") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, it.Name)
		}
		if want := []string{of(3000).Name, of(6000).Name}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
