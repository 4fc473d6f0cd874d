package azure

import (
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// place is where a name is stored.
type place struct {
	name           string // as the user writes it
	root           string // the part of it before the key, without a slash at the end
	account        string
	container, key string
	base           url.URL // of the account: scheme, host, and a path where accounts are paths
}

// top is the container of a place.
func (p place) top() place {
	p.key = ""
	return p
}

// url is made without parsing: names are data.
func (r request) url() *url.URL {
	u := r.base
	plain, raw := u.Path, u.EscapedPath()
	for part := range strings.SplitSeq(strings.TrimSuffix(r.container+"/"+r.key, "/"), "/") {
		plain, raw = plain+"/"+part, raw+"/"+url.PathEscape(part)
	}
	u.Path, u.RawPath, u.RawQuery = plain, raw, r.query.Encode()
	return &u
}

// environment is what variables say of the account; its secrets are used for that account
// alone.
type environment struct {
	account  string
	owner    string   // of key and sas, as far as that is known; "": it is not
	any      bool     // they are of every account
	endpoint *url.URL // of the account; nil: Azure's
	suffix   string   // of hosts
	key      string   // in base64
	sas      string
	keyFrom  string // variables
	sasFrom  string
	wrote    []string // accounts that the user wrote, if owner was looked for among them
	wrong    string   // the variable that cannot be read
}

const azureSuffix = "core.windows.net"

// The account and the key of the emulator, which are the same everywhere and no secret.
const (
	devAccount = "devstoreaccount1"
	devKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// readEnvironment reads the variables of Azure's command line: a connection string comes
// before all others.
func readEnvironment() environment {
	first := func(names ...string) (string, string) {
		for _, n := range names {
			if v := os.Getenv(n); v != "" {
				return v, n
			}
		}
		return "", ""
	}
	e := environment{suffix: azureSuffix}
	if s := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); s != "" {
		e.connect(s)
		return e
	}
	e.account, _ = first("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
	e.key, e.keyFrom = first("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
	e.sas, e.sasFrom = first("AZURE_STORAGE_SAS_TOKEN")
	return e
}

// bind says whose the secrets are. What names no account was meant for the only one that the
// user wrote, or for the server that he wrote: others may be named by strangers, and a
// signature that is sent is given away.
func (e *environment) bind(a source.Access) {
	e.owner = e.account
	if e.owner != "" || e.key == "" && e.sas == "" {
		return
	}
	if a.Storage.EndpointURL != "" { // where all requests go
		e.any = true
		return
	}
	if e.wrote = accounts(a.Written); len(e.wrote) == 1 {
		e.owner = e.wrote[0]
	}
}

// accounts are those in names that the user wrote, each once.
func accounts(w *source.Written) (all []string) {
	if w == nil {
		return nil
	}
	for _, name := range w.Names {
		names, err := source.Braces(source.HostOf(source.OfList(name)))
		if err != nil {
			continue // whoever expands it says so
		}
		for _, name := range names {
			_, host, ok := strings.Cut(name, "@")
			account, _, _ := strings.Cut(host, ".")
			if ok && !slices.Contains(all, account) {
				all = append(all, account)
			}
		}
	}
	return all
}

// connect reads a connection string.
func (e *environment) connect(s string) {
	const variable = "AZURE_STORAGE_CONNECTION_STRING"
	parts := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		name, v, ok := strings.Cut(part, "=")
		if !ok && strings.TrimSpace(part) != "" {
			e.wrong = variable
		}
		parts[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(v)
	}
	e.keyFrom, e.sasFrom = variable, variable
	if strings.EqualFold(parts["usedevelopmentstorage"], "true") {
		proxy := parts["developmentstorageproxyuri"]
		if proxy == "" {
			proxy = "http://127.0.0.1"
		}
		parts["accountname"], parts["accountkey"], parts["blobendpoint"] = devAccount, devKey, strings.TrimRight(proxy, "/")+":10000/"+devAccount
	}
	e.account, e.key, e.sas = parts["accountname"], parts["accountkey"], parts["sharedaccesssignature"]
	if parts["endpointsuffix"] != "" {
		e.suffix = parts["endpointsuffix"]
	}
	at := parts["blobendpoint"]
	if at == "" && parts["defaultendpointsprotocol"] == "http" && e.account != "" {
		at = "http://" + e.account + ".blob." + e.suffix
	}
	if at == "" {
		return
	}
	u, ok := server(at)
	if !ok {
		e.wrong = variable
		return
	}
	if e.endpoint = u; e.account == "" {
		e.account = accountOf(u)
	}
}

// server reads the address of an endpoint.
func server(at string) (*url.URL, bool) {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, false
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}, true
}

// accountOf is the account of an endpoint: its path, or the first part of its host; "": it
// is not in it.
func accountOf(u *url.URL) string {
	if u.Path != "" {
		return u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	}
	if !named(u.Hostname()) {
		return ""
	}
	account, _, _ := strings.Cut(u.Hostname(), ".")
	return account
}

// named says whether the account may be in the name of a host: it is not in an address.
func named(host string) bool {
	return net.ParseIP(host) == nil && strings.Contains(host, ".")
}

// clouds are the hosts that a name may give itself: it may be written by somebody else, and
// tokens are sent to where it says.
var clouds = []string{".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net", ".core.cloudapi.de"}

// locate reads a name.
func (s *store) locate(name string) (place, error) {
	s.setup()
	p := place{name: name}
	bucket, key := remote.Split(name)
	p.key, p.root = key, strings.TrimSuffix(strings.TrimRight(name, "/"), key)
	p.root = strings.TrimSuffix(p.root, "/")
	wrong := func(what, try string) (place, error) {
		return place{}, errs.New(errs.Config, "%s", what).At(errs.Where{File: strings.Clone(name)}).Try("%s", try)
	}
	if s.env.wrong != "" {
		return wrong(s.env.wrong+" is not a connection string", "copy it from the page \"Access keys\" of the storage account")
	}
	if _, rest, _ := strings.Cut(name, "://"); bucket != "" && strings.HasPrefix(rest, "/") {
		return wrong("the name has no container", "write az://container/path")
	}
	// A server would follow such a part, to another container if there are enough.
	if parts := "/" + bucket + "/" + key + "/"; strings.Contains(parts, "/./") || strings.Contains(parts, "/../") {
		return wrong("no blob has \".\" or \"..\" as part of its name", "write the name without them")
	}
	container, host, ok := strings.Cut(bucket, "@")
	p.container = container
	suffix := s.env.suffix
	if ok {
		account, rest, _ := strings.Cut(host, ".")
		service, rest, _ := strings.Cut(rest, ".")
		p.account = account
		known := rest == s.env.suffix
		for _, c := range clouds {
			known = known || "."+rest == c
		}
		if account == "" || service != "dfs" && service != "blob" || !known {
			return wrong(errs.Name(host)+" is not a host of Azure Blob Storage", "write abfss://container@account.dfs.core.windows.net/path; for another server, write az://container/path and set endpoint_url to its address")
		}
		suffix = rest
	}
	at := s.env.endpoint
	if e := s.access.Storage.EndpointURL; e != "" {
		if at, ok = server(e); !ok {
			return wrong("dataset.storage.endpoint_url is not the address of a server", "write https://account.blob.core.windows.net or http://host:port/account")
		}
	} else if p.account != "" && p.account != s.env.account {
		at = nil // the endpoint of another account
	}
	if p.account == "" && at != nil {
		p.account = accountOf(at)
	}
	if p.account == "" {
		p.account = s.env.account
	}
	if p.account == "" {
		return wrong("the storage account is not known", "write abfss://container@account.dfs.core.windows.net/path, or set AZURE_STORAGE_ACCOUNT")
	}
	switch {
	case at == nil:
		p.base = url.URL{Scheme: "https", Host: p.account + ".blob." + suffix}
	case at.Path == "" && !named(at.Hostname()):
		p.base = url.URL{Scheme: at.Scheme, Host: at.Host, Path: "/" + p.account}
	default:
		p.base = *at
	}
	return p, nil
}
