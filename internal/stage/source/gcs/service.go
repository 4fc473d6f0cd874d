package gcs

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/jwt"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Google's library signs with the time of this machine, and Google refuses what was signed
// more than some minutes ago, or later than now. Here the time is corrected.

const (
	past = 10 * time.Second // how long ago a request says it was signed: no clock is exact
	life = time.Hour        // of a request, the most that Google allows
)

// serviceToken asks for a token of a service account with a request that its key signs (RFC
// 7523). One that is refused is signed again if the date of the answer says that the clock
// of this machine is wrong: a clock that is fast by less than past is not the reason.
func (c *credentials) serviceToken(ctx context.Context, seen *witness, who identity) (string, time.Time, error) {
	account, err := google.JWTConfigFromJSON(who.file, scope)
	var key *rsa.PrivateKey
	if err == nil {
		key, err = rsaKey(account.PrivateKey)
	}
	for corrected := false; ; corrected = true {
		signed := c.store.net.Now().Add(time.Duration(c.ahead.Load()))
		var req *http.Request
		if err == nil {
			req, err = post(ctx, account, key, signed)
		}
		if err != nil {
			return "", time.Time{}, errs.New(errs.Denied, "%s cannot be used", who.from).Because(err).Try("%s", help)
		}
		token, until, err := grant(seen, req)
		if err == nil {
			return token, until, nil
		}
		theirs, undated := http.ParseTime(seen.header.Get("Date"))
		if corrected || seen.status/100 != 4 || undated != nil || theirs.Sub(signed).Abs() < past {
			return "", time.Time{}, seen.noToken(ctx, who, err)
		}
		c.ahead.Store(int64(theirs.Sub(c.store.net.Now())))
	}
}

// post is a request for a token, signed now. Its error is about what the file says: trying
// again does not mend it.
func post(ctx context.Context, account *jwt.Config, key *rsa.PrivateKey, now time.Time) (*http.Request, error) {
	assertion, err := sign(account, key, now)
	if err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, account.TokenURL, strings.NewReader(form.Encode()))
	if err != nil || req.URL.Scheme != "https" && req.URL.Scheme != "http" || req.URL.Host == "" {
		return nil, errors.New("its token_uri is not the URL of a server")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return req, nil
}

// grant makes a request; until is by the clock of this machine.
func grant(seen *witness, req *http.Request) (token string, until time.Time, err error) {
	resp, err := seen.own().Do(req)
	if err != nil {
		return "", time.Time{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var t struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &t)
	}
	if err == nil && t.Token == "" {
		err = errors.New("the answer has no token")
	}
	if t.Seconds > 0 {
		until = time.Now().Add(time.Duration(t.Seconds) * time.Second)
	}
	return t.Token, until, err
}

// sign makes the assertion of a request.
func sign(account *jwt.Config, key *rsa.PrivateKey, now time.Time) (string, error) {
	head := map[string]string{"alg": "RS256", "typ": "JWT"}
	if account.PrivateKeyID != "" {
		head["kid"] = account.PrivateKeyID
	}
	aud := account.Audience
	if aud == "" {
		aud = account.TokenURL
	}
	now = now.Add(-past)
	claims := map[string]any{
		"iss": account.Email, "scope": strings.Join(account.Scopes, " "), "aud": aud, "iat": now.Unix(), "exp": now.Add(life).Unix(),
	}
	var parts [2]string
	for i, v := range []any{head, claims} {
		b, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		parts[i] = base64.RawURLEncoding.EncodeToString(b)
	}
	text := parts[0] + "." + parts[1]
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), err
}

// rsaKey reads a private key. The error says nothing of it.
func rsaKey(b []byte) (*rsa.PrivateKey, error) {
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	if key, err := x509.ParsePKCS1PrivateKey(b); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(b)
	if key, ok := parsed.(*rsa.PrivateKey); ok && err == nil {
		return key, nil
	}
	return nil, errors.New("its private_key is not an RSA key in PEM")
}
