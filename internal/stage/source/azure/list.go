package azure

import (
	"context"
	"encoding/xml"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// listing is a page of the API. Its names are data.
type listing struct {
	Blobs struct {
		Blob   []blob `xml:"Blob"`
		Prefix []struct {
			Name       label `xml:"Name"`
			Properties properties
		} `xml:"BlobPrefix"`
	} `xml:"Blobs"`
	Next string `xml:"NextMarker"`
}

type blob struct {
	Name       label `xml:"Name"`
	Properties properties
	Metadata   struct {
		All []struct {
			XMLName xml.Name
			Value   string `xml:",chardata"`
		} `xml:",any"`
	}
}

// isFolder is as that of headers.
func (b blob) isFolder() bool {
	for _, m := range b.Metadata.All {
		if strings.EqualFold(m.XMLName.Local, "hdi_isfolder") && strings.EqualFold(m.Value, "true") {
			return true
		}
	}
	return b.Properties.Kind == "directory"
}

type properties struct {
	Size string `xml:"Content-Length"`
	ETag string `xml:"Etag"`
	Kind string `xml:"ResourceType"` // "file", "directory"; "": the namespace is flat
}

// label is a name; it is encoded if XML cannot represent a character.
type label struct {
	Encoded bool   `xml:"Encoded,attr"`
	Text    string `xml:",chardata"`
}

func (l label) name() (string, error) {
	if !l.Encoded {
		return l.Text, nil
	}
	name, err := url.PathUnescape(l.Text)
	if err != nil {
		return "", &remote.Fault{Kind: remote.Broken, What: "a name in the listing is wrongly encoded", Cause: err}
	}
	return name, nil
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
	p, err := s.locate(dir)
	if err != nil {
		return remote.Page{}, err
	}
	if p.container == "" {
		return s.containers(ctx, p, flat, token)
	}
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "include": {"metadata"}}
	if prefix := remote.Prefix(dir, letters); prefix != "" {
		query.Set("prefix", prefix)
	}
	if !flat {
		query.Set("delimiter", "/")
	}
	if token != "" {
		query.Set("marker", token)
	}
	var l listing
	if err := s.ask(ctx, request{place: p.top(), method: http.MethodGet, query: query}, &l); err != nil {
		return remote.Page{}, err
	}
	page, err := l.page(p.root)
	page.Loose = page.Loose || !flat // folders may come apart from blobs
	return page, err
}

// page is the listing of a container, whose name as the user writes it is root. What makes
// a folder is not an object; the folder is listed for what is in it. A hierarchical namespace
// has another order: "a/b" before "a-b".
func (l listing) page(root string) (remote.Page, error) {
	page := remote.Page{Next: l.Next}
	objects := make([]source.Info, 0, len(l.Blobs.Blob))
	for _, b := range l.Blobs.Blob {
		name, err := b.Name.name()
		if err != nil {
			return remote.Page{}, err
		}
		page.Loose = page.Loose || b.Properties.Kind != ""
		if b.isFolder() {
			continue
		}
		size, err := strconv.ParseInt(b.Properties.Size, 10, 64)
		if err != nil || size < 0 {
			return remote.Page{}, &remote.Fault{Kind: remote.Broken, What: "the listing has a blob of " + strconv.Quote(b.Properties.Size) + " bytes"}
		}
		objects = append(objects, source.Info{Name: root + "/" + name, Size: size, Version: version(b.Properties.ETag)})
	}
	folders := make([]string, 0, len(l.Blobs.Prefix))
	for _, f := range l.Blobs.Prefix {
		name, err := f.Name.name()
		if err != nil {
			return remote.Page{}, err
		}
		folders = append(folders, root+"/"+name)
	}
	page.Entries = remote.Entries(objects, folders)
	return page, nil
}

// below says whether there is anything in a folder: a blob below it, or what makes it. A
// container that may be listed is a folder.
func (s *store) below(ctx context.Context, p place) (bool, error) {
	if p.container == "" {
		return true, nil // the scheme, whose folders are the containers
	}
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "maxresults": {"1"}}
	if p.key != "" {
		query.Set("prefix", p.key+"/")
	}
	for {
		var l listing
		if err := s.ask(ctx, request{place: p.top(), method: http.MethodGet, query: query}, &l); err != nil {
			return false, err
		}
		if p.key == "" || len(l.Blobs.Blob) > 0 || l.Next == "" || l.Next == query.Get("marker") {
			return p.key == "" || len(l.Blobs.Blob) > 0, nil
		}
		query.Set("marker", l.Next) // a page may be empty and not the last
	}
}

// containers are those of the account, for the error of one that does not exist.
func (s *store) containers(ctx context.Context, p place, flat bool, token string) (remote.Page, error) {
	if flat {
		return remote.Page{}, remote.Missing(p.name)
	}
	query := url.Values{"comp": {"list"}}
	if token != "" {
		query.Set("marker", token)
	}
	var l struct {
		Names []string `xml:"Containers>Container>Name"`
		Next  string   `xml:"NextMarker"`
	}
	if err := s.ask(ctx, request{place: p.top(), method: http.MethodGet, query: query}, &l); err != nil {
		return remote.Page{}, err
	}
	folders := make([]string, 0, len(l.Names))
	for _, name := range l.Names {
		folders = append(folders, s.scheme+"://"+name+"/")
	}
	return remote.Page{Entries: remote.Entries(nil, folders), Next: l.Next, Loose: true}, nil
}
