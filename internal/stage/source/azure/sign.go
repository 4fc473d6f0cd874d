package azure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// sign puts the signature of an account's key on a request ("Authorize with Shared Key").
// now is the store's time.
func sign(req *http.Request, account string, key []byte, now time.Time) {
	req.Header["X-Ms-Date"] = []string{now.UTC().Format(http.TimeFormat)}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text(req, account)))
	req.Header["Authorization"] = []string{"SharedKey " + account + ":" + base64.StdEncoding.EncodeToString(mac.Sum(nil))}
}

// text is what is signed. Requests here have no body, and of the headers that have a line
// of their own they may have If-Match:
//
//	GET
//	Content-Encoding, -Language, -Length, -MD5, -Type; Date; If-Modified-Since
//	If-Match
//	If-None-Match, If-Unmodified-Since, Range
//	x-ms-...:...
//	/account/path
//	parameter:value
func text(req *http.Request, account string) string {
	var b strings.Builder
	b.WriteString(req.Method + strings.Repeat("\n", 8) + req.Header.Get("If-Match") + strings.Repeat("\n", 4))
	var own []string
	for name, v := range req.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own = append(own, name+":"+v[0]+"\n")
		}
	}
	slices.Sort(own)
	b.WriteString(strings.Join(own, ""))
	b.WriteString("/" + account + req.URL.EscapedPath())
	query, _ := url.ParseQuery(req.URL.RawQuery) // it was made of Values
	var lines []string
	for name, v := range query {
		slices.Sort(v)
		lines = append(lines, "\n"+strings.ToLower(name)+":"+strings.Join(v, ","))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	return b.String()
}
