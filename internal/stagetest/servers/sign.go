package servers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// escaped is a name with slashes as signatures want it in a path: every byte but letters,
// digits and -._~ as %XX.
func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c == '/' || c == '-' || c == '.' || c == '_' || c == '~' || c-'0' < 10 || c-'a' < 26 || c-'A' < 26 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// awsKey signs requests as Signature Version 4 of AWS wants it.
type awsKey struct{ id, secret, region, service string }

func (k awsKey) sign(req *http.Request, body []byte) {
	now := time.Now().UTC()
	day, at := now.Format("20060102"), now.Format("20060102T150405Z")
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Date", at)
	req.Header.Set("X-Amz-Content-Sha256", payload)

	headers := map[string]string{"host": req.Host}
	for name, values := range req.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	names, canonical := sortedLines(headers)
	query := strings.ReplaceAll(req.URL.Query().Encode(), "+", "%20")
	request := strings.Join([]string{req.Method, req.URL.EscapedPath(), query, canonical, names, payload}, "\n")

	scope := day + "/" + k.region + "/" + k.service + "/aws4_request"
	hashed := sha256.Sum256([]byte(request))
	key := []byte("AWS4" + k.secret)
	for _, part := range []string{day, k.region, k.service, "aws4_request"} {
		key = sha(key, part)
	}
	signature := hex.EncodeToString(sha(key, "AWS4-HMAC-SHA256\n"+at+"\n"+scope+"\n"+hex.EncodeToString(hashed[:])))
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.id+"/"+scope+", SignedHeaders="+names+", Signature="+signature)
}

// azureKey signs requests by the shared key of a storage account.
type azureKey struct{ account, key string }

func (k azureKey) sign(req *http.Request, body []byte) {
	req.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	if req.Header.Get("x-ms-version") == "" {
		req.Header.Set("x-ms-version", "2023-11-03")
	}
	length := ""
	if len(body) > 0 {
		length = fmt.Sprint(len(body))
	}
	parts := []string{req.Method, "", "", length}
	for _, name := range []string{"Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		parts = append(parts, req.Header.Get(name))
	}
	own, query := map[string]string{}, map[string]string{}
	for name, values := range req.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own[name] = strings.Join(values, ",")
		}
	}
	for name, values := range req.URL.Query() {
		query[strings.ToLower(name)] = strings.Join(slices.Sorted(slices.Values(values)), ",")
	}
	_, headers := sortedLines(own)
	_, queries := sortedLines(query)
	// The account is written before a path that begins with it, too.
	text := strings.Join(parts, "\n") + "\n" + headers + "/" + k.account + req.URL.EscapedPath()
	if queries != "" {
		text += "\n" + strings.TrimSuffix(queries, "\n")
	}
	secret, err := base64.StdEncoding.DecodeString(k.key)
	if err != nil {
		panic(err) // the key is a constant
	}
	req.Header.Set("Authorization", "SharedKey "+k.account+":"+base64.StdEncoding.EncodeToString(sha(secret, text)))
}

func sha(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// sortedLines are names in order, and a line name:value of each.
func sortedLines(values map[string]string) (names, lines string) {
	var all []string
	for name := range values {
		all = append(all, name)
	}
	slices.Sort(all)
	for _, name := range all {
		lines += name + ":" + strings.TrimSpace(values[name]) + "\n"
	}
	return strings.Join(all, ";"), lines
}
