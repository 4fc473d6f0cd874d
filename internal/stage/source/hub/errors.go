package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// read reads an answer that is an error, all of it, so that the connection can be used
// again. A body that is not JSON is a page for a browser, or of a proxy: it stays there.
func read(resp *http.Response) remote.Said {
	body := remote.Complaint(resp)
	s := remote.Said{Who: "the Hub", Status: resp.StatusCode, Code: resp.Header.Get("X-Error-Code"), Message: resp.Header.Get("X-Error-Message")}
	var j struct {
		Error string `json:"error"`
	}
	if s.Message == "" && json.Unmarshal(body, &j) == nil {
		s.Message = j.Error
	}
	return s.Short(60)
}

// invalid says whether an answer 401 is about the token itself, not about what it asks for.
func invalid(h http.Header) bool {
	return h.Get("X-Error-Message") == "Invalid credentials in Authorization header"
}

// gone is an answer that says that there is no such repository, or no such revision of it,
// or that the user may not know.
type gone struct{ remote.Said }

// Is ends a search for similar names: none is stored there.
func (gone) Is(target error) bool { return target == source.ErrNoStore }

// badToken is the error of a token that the Hub does not know.
func (s *store) badToken(name string, who token, resp *http.Response) error {
	return errs.New(errs.Denied, "the Hub does not accept the token of %s", errs.Plain(who.from)).At(at(name)).Because(read(resp)).
		Try("get another at %s, or run `hf auth login`; for public data, set dataset.storage.anonymous", s.page("settings/tokens"))
}

// page is the address of a page of the Hub, for people.
func (s *store) page(path string) string { return s.account.endpoint.String() + "/" + path }

// refused is the error of an answer of the endpoint's that is not the one that was wanted;
// a gone if there is no such repository.
func (s *store) refused(ctx context.Context, name string, r *repo, resp *http.Response) error {
	why := read(resp)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f := remote.Answered(resp.Header, resp.StatusCode, why.Code); f != nil {
		if f.After == 0 && f.Kind == remote.Throttled {
			f.After = reset(resp.Header)
		}
		return f
	}
	where := at(name)
	switch {
	case why.Code == "GatedRepo":
		return errs.New(errs.Denied, "access to the dataset %s must be granted first", r.id).At(where).Because(why).
			Try("ask for it at %s; %s", s.page("datasets/"+r.id), s.sent())
	case why.Code == "RevisionNotFound":
		return s.noRevision(ctx, name, r, why)
	case why.Code == "EntryNotFound":
		return remote.Missing(name)
	case why.Code == "RepoNotFound", why.Code == "" && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized):
		return gone{why}
	case strings.Contains(why.Message, "disabled"):
		return errs.New(errs.Denied, "the Hub has disabled access to the dataset %s", r.id).At(where).Because(why).
			Try("see %s", s.page("datasets/"+r.id))
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return errs.New(errs.Denied, "the Hub denies access to the dataset %s", r.id).At(where).Because(why).
			Try("see %s; %s", s.page("datasets/"+r.id), s.sent())
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return errs.New(errs.Denied, "the proxy requires a user name and a password").At(where).Because(why).Try("put user and password into HTTPS_PROXY: http://user:password@proxy:port")
	}
	return errs.New(errs.Unreadable, "the Hub refused the request").At(where).Because(why).Try("check the name and HF_ENDPOINT")
}

// left matches what "RateLimit" says: r more requests in the next t seconds.
var left = regexp.MustCompile(`r=0\s*;\s*t=(\d{1,6})`)

// reset is how long the Hub asks clients to wait, in its own header.
func reset(h http.Header) time.Duration {
	if m := left.FindStringSubmatch(h.Get("RateLimit")); m != nil {
		if s, err := strconv.Atoi(m[1]); err == nil {
			return time.Duration(s) * time.Second
		}
	}
	return 0
}

// sent says which token was sent, and how to send another.
func (s *store) sent() string {
	switch who := s.account.who(); {
	case who.value != "" && !remote.Private(&s.account.endpoint):
		return "no token was sent, because it is not sent over plain HTTP: write https:// in HF_ENDPOINT"
	case who.value != "":
		return "the token sent is that of " + errs.Plain(who.from) + ": it must belong to an account that has access, and a fine-grained token must list the dataset"
	case s.access.Storage.Anonymous:
		return "the request was anonymous: leave out dataset.storage.anonymous if you have a token"
	}
	return "no token was found in HF_TOKEN or the file of `hf auth login`: set one"
}

// absent is the error of a dataset that does not exist, or that this user may not see: the
// Hub does not say which.
func (s *store) absent(ctx context.Context, name string, r ref, why error) error {
	if strings.ContainsAny(name, "{*?[") { // a pattern, whose names will be asked for
		return remote.Missing(name)
	}
	e := errs.New(errs.NotFound, "the Hub has no dataset %s, or it is private", r.repo).At(at(name)).Because(why)
	hint := "check the name."
	if near := s.nearest(ctx, name, r); near != "" {
		hint = "did you mean hf://datasets/" + near + "?"
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return e.Try("%s If it is private, access is given at %s; %s", hint, s.page("datasets/"+r.repo), s.sent())
}

// nearest is the dataset that was probably meant: one of the owner's, or one of that name
// of another owner's; "": the Hub names none. It is a hint, so faults do not matter.
func (s *store) nearest(ctx context.Context, name string, r ref) string {
	owner, own, ok := strings.Cut(r.repo, "/")
	search := func(query url.Values) (ids []string) {
		var found []struct {
			ID string `json:"id"`
		}
		query.Set("limit", "500")
		if _, err := s.ask(ctx, name, &repo{id: r.repo}, "/api/datasets", query, &found); err != nil {
			return nil
		}
		for _, d := range found {
			if d.ID != r.repo {
				ids = append(ids, d.ID)
			}
		}
		return ids
	}
	if ok {
		ids := search(url.Values{"author": {owner}})
		names := make([]string, 0, len(ids))
		for _, id := range ids {
			_, n, _ := strings.Cut(id, "/")
			names = append(names, n)
		}
		if near := errs.Nearest(own, names); near != "" {
			return owner + "/" + near
		}
	} else {
		own = owner
	}
	ids := search(url.Values{"search": {own}, "sort": {"downloads"}})
	if at := slices.IndexFunc(ids, func(id string) bool { return id == own || strings.HasSuffix(id, "/"+own) }); at >= 0 {
		return ids[at]
	}
	return errs.Nearest(r.repo, ids)
}

// noRevision is the error of a revision that does not exist.
func (s *store) noRevision(ctx context.Context, name string, r *repo, why remote.Said) error {
	var refs struct {
		Branches, Converts, Tags []struct {
			Name string `json:"name"`
			Ref  string `json:"ref"`
		}
	}
	hint := "see " + s.page("datasets/"+r.id+"/refs")
	if _, err := s.ask(ctx, name, r, "/api/datasets/"+escaped(r.id)+"/refs", nil, &refs); err == nil {
		var names []string
		for _, b := range slices.Concat(refs.Branches, refs.Tags) {
			names = append(names, b.Name)
		}
		for _, b := range refs.Converts {
			names = append(names, b.Ref)
		}
		if near := errs.Nearest(r.revision, names); near != "" {
			hint = fmt.Sprintf("did you mean @%s?", url.PathEscape(near))
		} else if len(names) > 0 {
			hint = "it has " + strings.Join(names[:min(len(names), 5)], ", ") + map[bool]string{true: ", ..."}[len(names) > 5] + "; write a slash in a revision as %2F"
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errs.New(errs.NotFound, "the dataset %s has no revision %s", r.id, errs.Name(r.revision)).At(at(name)).
		Because(gone{why}).Try("%s", hint)
}
