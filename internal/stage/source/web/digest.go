package web

import (
	"bytes"
	"crypto/md5" //nolint:gosec // servers send it; it is compared against accidents
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// compare holds a body to the checksums that its answer has. Content-Digest (RFC 9530) is
// that of the body, whatever part it is. Repr-Digest, Digest (RFC 3230) and Content-MD5 are
// those of the whole file, of which servers disagree whether a part has its own: they count
// if the whole was requested.
func compare(name string, h http.Header, body []byte, whole bool) error {
	headers := []string{"Content-Digest"}
	if whole {
		headers = append(headers, "Repr-Digest", "Digest")
	}
	for _, header := range headers {
		want, ok := sha256Of(h.Values(header))
		if !ok {
			continue // most servers send none: the body is not looked at
		}
		if sum := sha256.Sum256(body); !bytes.Equal(want, sum[:]) {
			return remote.Spoiled(name, header)
		}
	}
	if v := h.Get("Content-MD5"); whole && v != "" {
		want, err := base64.StdEncoding.DecodeString(v)
		if err != nil || len(want) != md5.Size {
			return nil
		}
		if sum := md5.Sum(body); !bytes.Equal(want, sum[:]) { //nolint:gosec // as above
			return remote.Spoiled(name, "Content-MD5")
		}
	}
	return nil
}

// sha256Of is the SHA-256 in headers such as "sha-256=:BASE64:, md5=..." or, in the older
// form, "SHA-256=BASE64".
func sha256Of(values []string) (sum []byte, ok bool) {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
			if !strings.EqualFold(name, "sha-256") {
				continue
			}
			if strings.HasPrefix(value, ":") {
				value, _, _ = strings.Cut(value[1:], ":")
			}
			if sum, err := base64.StdEncoding.DecodeString(value); err == nil && len(sum) == sha256.Size {
				return sum, true
			}
		}
	}
	return nil, false
}
