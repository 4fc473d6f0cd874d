package s3

import (
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// problem is what the body of an error answer says. Everything else in such a body
// stays there: it may repeat the request with its signature.
type problem struct {
	Code, Message string
	Region        string // where the bucket is
}

const (
	mostProblem = 64 << 10 // bytes of such a body that are read
	mostMessage = 300      // of its message that is shown
)

func readProblem(body []byte, creds aws.Credentials) problem {
	var p struct {
		XMLName xml.Name `xml:"Error"`
		problem
	}
	if xml.Unmarshal(body, &p) != nil {
		return problem{}
	}
	for _, secret := range []string{creds.SecretAccessKey, creds.SessionToken} {
		if len(secret) >= 8 { // a shorter one is none
			p.Message = strings.ReplaceAll(p.Message, secret, "****")
		}
	}
	if id := creds.AccessKeyID; id != "" {
		p.Message = strings.ReplaceAll(p.Message, id, short(id))
	}
	if len(p.Message) > mostMessage {
		p.Message = strings.ToValidUTF8(p.Message[:mostMessage], "") + "..."
	}
	if len(p.Code) > 64 {
		p.Code = ""
	}
	return p.problem
}

// cause is the answer in a few words: 403 AccessDenied: Access Denied.
func (ans *answer) cause() error {
	text := "the store answered " + strconv.Itoa(ans.StatusCode)
	if ans.Code != "" {
		text += " " + ans.Code
	}
	if ans.Message != "" {
		text += ": " + ans.Message
	}
	return errors.New(text)
}

// Codes of problems, by their meaning. There are hundreds; the others are judged by their status.
func isExpired(code string) bool {
	return slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}, code)
}

func isThrottled(code string) bool {
	return slices.Contains([]string{"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded"}, code)
}

func isPassing(code string) bool {
	return slices.Contains([]string{"RequestTimeout", "InternalError", "OperationAborted", "ServiceUnavailable"}, code)
}

// refused is the error of an answer that is not the one that was wanted.
func (s *store) refused(o object, ans *answer) error {
	if f := remote.Answered(ans.Header, ans.StatusCode, ans.Code); f != nil {
		if isThrottled(ans.Code) {
			f.Kind = remote.Throttled
		}
		return f
	}
	again := &remote.Fault{Status: ans.StatusCode, After: remote.RetryAfter(ans.Header), What: ans.cause().Error()}
	switch {
	case isThrottled(ans.Code):
		again.Kind = remote.Throttled
		return again
	case isPassing(ans.Code):
		again.Kind = remote.Unreachable
		return again
	case ans.expired(s.net.Now().Add(time.Duration(s.skew.Load()))):
		s.renew(ans.account)
		again.Kind = remote.Expired
		again.Final = errs.New(errs.Denied, "the credentials have expired").At(at(o.name)).Because(ans.cause()).
			Try("%s: get new ones", ans.who())
		return again
	}
	return s.final(o, ans).At(at(o.name)).Because(ans.cause())
}

// expired says whether the credentials were refused because their time is over.
func (ans *answer) expired(now time.Time) bool {
	if ans.account.provider == nil {
		return false
	}
	refused := ans.StatusCode == http.StatusUnauthorized || ans.StatusCode == http.StatusForbidden
	return isExpired(ans.Code) || refused && ans.creds.CanExpire && now.After(ans.creds.Expires)
}

// final is the error of an answer that no retry changes, without its place and cause.
func (s *store) final(o object, ans *answer) *errs.Error {
	switch ans.Code {
	case "NoSuchBucket":
		return errs.New(errs.NotFound, "there is no bucket %s", errs.Name(o.bucket)).
			Try("check the name of the bucket%s", elsewhereHint(ans.account))
	case "InvalidBucketName":
		return errs.New(errs.NotFound, "%s is not the name of a bucket", errs.Name(o.bucket)).Try("write s3://bucket/key")
	case "InvalidObjectState":
		return errs.New(errs.Unreadable, "the object is archived").
			Try("restore it first, or copy it to a storage class that can be read at once")
	case "InvalidAccessKeyId", "InvalidToken", "XAdminUserNotFound":
		if ans.Code == "InvalidToken" {
			return errs.New(errs.Denied, "the store refused the session token").
				Try("%s: get new temporary keys, or unset AWS_SESSION_TOKEN if the key needs none", ans.who())
		}
		return errs.New(errs.Denied, "the store does not know the access key").
			Try("%s: check that it belongs to this store%s, and has not been deleted", ans.who(), elsewhereHint(ans.account))
	case "SignatureDoesNotMatch":
		return errs.New(errs.Denied, "the store refused the signature").
			Try("%s: check the secret key that belongs to it, and that no proxy changes requests", ans.who())
	case "RequestTimeTooSkewed":
		return errs.New(errs.Denied, "the store refused the time of the request as wrong").Try("set the clock of this machine")
	}
	switch ans.StatusCode {
	case http.StatusNotFound:
		if slices.Contains([]string{"", "NoSuchKey", "NotFound", "NoSuchVersion"}, ans.Code) {
			return errs.From(remote.Missing(o.name))
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		e := errs.New(errs.Denied, "the store denies access")
		if ans.account.provider == nil {
			return e.Try("the request was anonymous: leave out dataset.storage.anonymous if you have credentials")
		}
		pays := ""
		if !s.storage.RequesterPays {
			pays = "; if the requester pays for this bucket, set dataset.storage.requester_pays"
		}
		return e.Try("%s: they need s3:GetObject for objects and s3:ListBucket for the bucket (without it, missing names are denied too)%s", ans.who(), pays)
	}
	return errs.New(errs.Unreadable, "the store refused the request").Try("look up the code in the documentation of the store")
}

// elsewhereHint names the store, if that may be the mistake.
func elsewhereHint(a *account) string {
	if a.endpoint.base != nil {
		return " at " + errs.Plain(a.endpoint.base.Host) + " (endpoint_url)"
	}
	return ", and endpoint_url if the store is not AWS"
}

// located adds the requested name to an error of the configuration.
func located(err error, name string) error {
	var e *errs.Error
	if errors.As(err, &e) && e.Where == (errs.Where{}) {
		return e.At(at(name))
	}
	return err
}
