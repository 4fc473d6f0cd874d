package azure

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// read reads the body of an error, all of it, so that the connection can be used again. An
// answer to HEAD has none, but the code is in a header too.
func read(resp *http.Response) remote.Said {
	body := remote.Complaint(resp)
	var x struct {
		Code    string
		Message string
		Detail  string `xml:"AuthenticationErrorDetail"`
	}
	s := remote.Said{Status: resp.StatusCode, Code: resp.Header.Get("X-Ms-Error-Code")}
	if xml.Unmarshal(body, &x) == nil {
		if s.Code == "" {
			s.Code = x.Code
		}
		// What follows the first line is the number of the request, and the time.
		s.Message, _, _ = strings.Cut(strings.TrimSpace(x.Message), "\n")
		// The detail of a wrong signature quotes what was signed: not the key, but names.
		if x.Detail != "" && !strings.Contains(x.Detail, "MAC signature") && !strings.Contains(x.Detail, "Signature") {
			s.Message += " " + strings.TrimSpace(x.Detail)
		}
	}
	return s.Short(80)
}

// noContainer is the cause of an error: not the blob is missing, but its container.
type noContainer struct{ remote.Said }

func isNoContainer(err error) bool {
	var n noContainer
	return errors.As(err, &n)
}

// denied are the codes of answers that say that credentials are missing or not enough, and
// have another status than others of the kind.
func denied(status int, code string) bool {
	switch code {
	case "PublicAccessNotPermitted", "NoAuthenticationInformation", "InvalidAuthenticationInfo", "AuthenticationFailed", "AccountIsDisabled":
		return true
	}
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// refused is the error of an answer that is not the one that was wanted.
func (s *store) refused(ctx context.Context, r request, resp *http.Response) error {
	why := read(resp)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f := remote.Answered(resp.Header, resp.StatusCode, why.Code); f != nil {
		if why.Message != "" {
			f.Cause = errors.New(why.Message)
		}
		return f
	}
	where, container := errs.Where{File: strings.Clone(r.name)}, errs.Name(strings.Clone(r.container))
	was := usedBy(resp.Request)
	switch {
	case why.Code == "ContainerNotFound":
		return errs.New(errs.NotFound, "there is no container %s in the storage account %s", container, errs.Name(r.account)).At(where).Because(noContainer{why}).
			Try("check its name; `az storage container list --account-name %s` lists those that exist", errs.Name(r.account))
	case why.Code == "ResourceNotFound" && was == (used{}):
		// What nobody may see without credentials is said not to exist.
		return errs.New(errs.Denied, "there is no such container, or it is not public").At(where).Because(why).Try("%s", s.creds.hint(r, was))
	case resp.StatusCode == http.StatusNotFound:
		return remote.Missing(r.name)
	case why.Code == "BlobArchived", why.Code == "BlobBeingRehydrated":
		return errs.New(errs.Unreadable, "the blob is archived").At(where).Because(why).
			Try("rehydrate it: `az storage blob set-tier --account-name %s --container-name %s --name NAME --tier Hot`", errs.Name(r.account), container)
	case denied(resp.StatusCode, why.Code):
		hint := s.creds.hint(r, was)
		if at := resp.Header.Get("Www-Authenticate"); was.token != "" && strings.Contains(at, "authorization_uri=") {
			_, tenant, _ := strings.Cut(at, "authorization_uri=")
			tenant, _, _ = strings.Cut(tenant, " ")
			hint += "; the account takes tokens of " + errs.Name(remote.Shortened(tenant, 100))
		}
		return errs.New(errs.Denied, "Azure Blob Storage denies access").At(where).Because(why).Try("%s", hint)
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return remote.NoProxyAccess(r.name)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return errs.New(errs.Unreadable, "the server redirects to another address, to which no credentials are sent").At(where).Because(why).
			Try("check endpoint_url and any proxies")
	}
	return errs.New(errs.Unreadable, "the server refused the request").At(where).Because(why).Try("check the name and endpoint_url")
}

// usedBy is what a request carried.
func usedBy(req *http.Request) (u used) {
	authorization := req.Header.Get("Authorization")
	token, _ := strings.CutPrefix(authorization, "Bearer ")
	if token != authorization {
		u.token = token
	}
	u.key = strings.HasPrefix(authorization, "SharedKey ")
	u.sas = strings.Contains("&"+req.URL.RawQuery, "&sig=")
	return u
}
