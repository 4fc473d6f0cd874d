package gcs

import (
	"context"
	"net/url"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// listing is a page of the API. Its names are data.
type listing struct {
	Items    []object `json:"items"`
	Prefixes []string `json:"prefixes"`
	Next     string   `json:"nextPageToken"`
}

// Page is remote.Store's.
func (s *store) Page(ctx context.Context, dir string, flat bool, token string) (remote.Page, error) {
	return s.page(ctx, dir, "", flat, token)
}

// Begin is remote.Prefixed's.
func (s *store) Begin(ctx context.Context, dir, letters, token string) (remote.Page, error) {
	return s.page(ctx, dir, letters, false, token)
}

func (s *store) page(ctx context.Context, dir, letters string, flat bool, token string) (remote.Page, error) {
	bucket, key := remote.Split(dir)
	if bucket == "" {
		return s.buckets(ctx, dir, flat, token)
	}
	query := url.Values{"fields": {"nextPageToken,prefixes,items(name,size,generation)"}}
	if prefix := remote.Prefix(dir, letters); prefix != "" {
		query.Set("prefix", prefix)
	}
	if !flat {
		query.Set("delimiter", "/")
	}
	if token != "" {
		query.Set("pageToken", token)
	}
	var l listing
	if err := s.ask(ctx, request{name: dir, bucket: bucket, query: query}, &l); err != nil {
		return remote.Page{}, err
	}
	return l.page(strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(dir, "/"), key), "/"))
}

// page is the listing of a bucket, whose name as the user writes it is root.
func (l listing) page(root string) (remote.Page, error) {
	objects := make([]source.Info, 0, len(l.Items))
	for _, o := range l.Items {
		it, err := o.info(root + "/" + o.Name)
		if err != nil {
			return remote.Page{}, err
		}
		objects = append(objects, it)
	}
	folders := make([]string, 0, len(l.Prefixes))
	for _, p := range l.Prefixes {
		folders = append(folders, root+"/"+p)
	}
	return remote.Page{Entries: remote.Entries(objects, folders), Next: l.Next}, nil
}

// below says whether there is anything in a folder: an object below it, or what makes it.
// A bucket that may be listed is a folder.
func (s *store) below(ctx context.Context, name, bucket, key string) (bool, error) {
	if bucket == "" {
		return true, nil // the scheme, whose folders are the buckets
	}
	query := url.Values{"fields": {"nextPageToken,items(name)"}, "maxResults": {"1"}}
	if key != "" {
		query.Set("prefix", key+"/")
	}
	for {
		var l listing
		if err := s.ask(ctx, request{name: name, bucket: bucket, query: query}, &l); err != nil {
			return false, err
		}
		if key == "" || len(l.Items) > 0 || l.Next == "" || l.Next == query.Get("pageToken") {
			return key == "" || len(l.Items) > 0, nil
		}
		query.Set("pageToken", l.Next) // a page may be empty and not the last
	}
}

// buckets are those of the project, for the error of one that does not exist.
func (s *store) buckets(ctx context.Context, dir string, flat bool, token string) (remote.Page, error) {
	if flat {
		return remote.Page{}, remote.Missing(dir)
	}
	if s.setup(); s.wrong != nil {
		return remote.Page{}, remote.Located(s.wrong, dir)
	}
	project, err := s.creds.project(ctx, dir)
	if err != nil {
		return remote.Page{}, err
	}
	query := url.Values{"project": {project}, "fields": {"nextPageToken,items(name)"}}
	if token != "" {
		query.Set("pageToken", token)
	}
	var l listing
	if err := s.ask(ctx, request{name: dir, query: query}, &l); err != nil {
		return remote.Page{}, err
	}
	names := make([]string, 0, len(l.Items))
	for _, b := range l.Items {
		names = append(names, s.scheme+"://"+b.Name+"/")
	}
	return remote.Page{Entries: remote.Entries(nil, names), Next: l.Next}, nil
}
