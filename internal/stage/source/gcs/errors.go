package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// said is what a server says of an error: its first reason, and a sentence.
type said struct {
	status  int
	reason  string
	message string
}

func (s said) Error() string {
	text := fmt.Sprintf("the server answered %d", s.status)
	if s.reason != "" {
		text += " " + s.reason
	}
	if s.message != "" {
		text += ": " + s.message
	}
	return text
}

// read reads the body of an error: JSON, or a sentence where bytes were asked for. All of
// it is read, so that the connection can be used again.
func read(resp *http.Response) said {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status alone says enough
	s := said{status: resp.StatusCode}
	var j struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &j); err == nil {
		s.message = j.Error.Message
		if len(j.Error.Errors) > 0 {
			s.reason = j.Error.Errors[0].Reason
		}
	} else if !strings.Contains(resp.Header.Get("Content-Type"), "xml") && !strings.HasPrefix(strings.TrimSpace(string(body)), "<") {
		s.message = strings.TrimSpace(string(body))
	}
	s.reason, s.message = shortened(s.reason, 60), shortened(s.message, 300)
	return s
}

func shortened(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// noBucket is the cause of an error: not the object is missing, but its bucket.
type noBucket struct{ said }

func isNoBucket(err error) bool {
	var n noBucket
	return errors.As(err, &n)
}

// refused is the error of an answer that is not the one that was wanted.
func (s *store) refused(ctx context.Context, r request, resp *http.Response) error {
	why := read(resp)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f := remote.Answered(resp.Header, resp.StatusCode, why.reason); f != nil {
		if why.message != "" {
			f.Cause = errors.New(why.message)
		}
		return f
	}
	where, bucket := errs.Where{File: strings.Clone(r.name)}, strings.Clone(r.bucket)
	switch {
	case resp.StatusCode == http.StatusForbidden && strings.Contains(strings.ToLower(why.reason), "ratelimitexceeded"):
		return &remote.Fault{Kind: remote.Throttled, Status: resp.StatusCode, After: remote.RetryAfter(resp.Header), What: why.Error()}
	case strings.Contains(why.message, "requester pays") && !s.access.Storage.RequesterPays:
		return errs.New(errs.Denied, "who reads the bucket %s pays for it", errs.Name(bucket)).At(where).Because(why).
			Try("set dataset.storage.requester_pays (storage_options={\"requester_pays\": True}) and GOOGLE_CLOUD_PROJECT, the project that is billed")
	case resp.StatusCode == http.StatusNotFound && (r.key == "" || strings.Contains(strings.ToLower(why.message), "bucket does not exist")):
		return errs.New(errs.NotFound, "there is no bucket %s", errs.Name(bucket)).At(where).Because(noBucket{why}).
			Try("check its name; `gcloud storage ls` shows those of your project")
	case resp.StatusCode == http.StatusNotFound:
		return remote.Missing(r.name)
	case resp.StatusCode == http.StatusForbidden:
		return errs.New(errs.Denied, "Google Cloud Storage does not allow this to be read").At(where).Because(why).Try("%s", s.creds.hint())
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return errs.New(errs.Denied, "the proxy wants a user").At(where).Because(why).Try("put user and password into HTTPS_PROXY: http://user:password@proxy:port")
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return errs.New(errs.Unreadable, "the server sends its clients elsewhere, where no credentials are sent").At(where).Because(why).
			Try("check endpoint_url and STORAGE_EMULATOR_HOST, and the proxies in between")
	}
	return errs.New(errs.Unreadable, "the server refused the request").At(where).Because(why).
		Try("check the name, endpoint_url and STORAGE_EMULATOR_HOST")
}

// unauthorized is what an answer 401 means: the token has expired, or there is none.
func (s *store) unauthorized(ctx context.Context, name, token string, resp *http.Response) error {
	why := read(resp)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	denied := errs.New(errs.Denied, "Google Cloud Storage does not know who asks").At(errs.Where{File: strings.Clone(name)}).Because(why).Try("%s", s.creds.hint())
	if token == "" || !s.creds.renewable() {
		return denied
	}
	s.creds.refused(token)
	return &remote.Fault{Kind: remote.Expired, Status: resp.StatusCode, What: "the token was not accepted", Cause: why, Final: denied}
}
