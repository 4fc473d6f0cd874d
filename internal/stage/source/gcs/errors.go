package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// read reads the body of an error: JSON, or a sentence where bytes were asked for. All of
// it is read, so that the connection can be used again.
func read(resp *http.Response) remote.Said {
	body := remote.Complaint(resp)
	s := remote.Said{Status: resp.StatusCode}
	var j struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &j); err == nil {
		s.Message = j.Error.Message
		if len(j.Error.Errors) > 0 {
			s.Code = j.Error.Errors[0].Reason
		}
	} else if !strings.Contains(resp.Header.Get("Content-Type"), "xml") && !strings.HasPrefix(strings.TrimSpace(string(body)), "<") {
		s.Message = strings.TrimSpace(string(body))
	}
	return s.Short(60)
}

// noBucket is the cause of an error: not the object is missing, but its bucket.
type noBucket struct{ remote.Said }

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
	if f := remote.Answered(resp.Header, resp.StatusCode, why.Code); f != nil {
		if why.Message != "" {
			f.Cause = errors.New(why.Message)
		}
		return f
	}
	where, bucket := errs.Where{File: strings.Clone(r.name)}, strings.Clone(r.bucket)
	switch {
	case resp.StatusCode == http.StatusForbidden && strings.Contains(strings.ToLower(why.Code), "ratelimitexceeded"):
		return &remote.Fault{Kind: remote.Throttled, Status: resp.StatusCode, After: remote.RetryAfter(resp.Header), What: why.Error()}
	case strings.Contains(why.Message, "requester pays") && !s.access.Storage.RequesterPays:
		return errs.New(errs.Denied, "requests to the bucket %s are paid for by the requester", errs.Name(bucket)).At(where).Because(why).
			Try("set dataset.storage.requester_pays (storage_options={\"requester_pays\": True}) and GOOGLE_CLOUD_PROJECT, the project to bill")
	case resp.StatusCode == http.StatusNotFound && (r.key == "" || strings.Contains(strings.ToLower(why.Message), "bucket does not exist")):
		return errs.New(errs.NotFound, "there is no bucket %s", errs.Name(bucket)).At(where).Because(noBucket{why}).
			Try("check its name; `gcloud storage ls` lists those of your project")
	case resp.StatusCode == http.StatusNotFound:
		return remote.Missing(r.name)
	case resp.StatusCode == http.StatusForbidden:
		return errs.New(errs.Denied, "Google Cloud Storage denies access").At(where).Because(why).Try("%s", s.creds.hint())
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return remote.NoProxyAccess(r.name)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return errs.New(errs.Unreadable, "the server redirects to another address, to which no credentials are sent").At(where).Because(why).
			Try("check endpoint_url, STORAGE_EMULATOR_HOST and any proxies")
	}
	return errs.New(errs.Unreadable, "the server refused the request").At(where).Because(why).
		Try("check the name, endpoint_url and STORAGE_EMULATOR_HOST")
}

// unauthorized is the error of an answer 401: the token has expired, or there is none.
func (s *store) unauthorized(ctx context.Context, name, token string, resp *http.Response) error {
	why := read(resp)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	denied := errs.New(errs.Denied, "Google Cloud Storage does not accept the credentials").At(errs.Where{File: strings.Clone(name)}).Because(why).Try("%s", s.creds.hint())
	if token == "" || !s.creds.renewable() {
		return denied
	}
	s.creds.refused(token)
	return &remote.Fault{Kind: remote.Expired, Status: resp.StatusCode, What: "the token was not accepted", Cause: why, Final: denied}
}
