package s3

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"net/http"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// nvme is the polynomial of the checksum that AWS computes of every new object, reflected.
const nvme = 0x9a6c9329ac4bc9b5

// sums are the checksums that an answer may have, the cheapest first.
func sums() []sum {
	return []sum{
		{"X-Amz-Checksum-Crc32", func() hash.Hash { return crc32.NewIEEE() }},
		{"X-Amz-Checksum-Crc32c", func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
		{"X-Amz-Checksum-Crc64nvme", func() hash.Hash { return crc64.New(crc64.MakeTable(nvme)) }},
		{"X-Amz-Checksum-Sha1", sha1.New},
		{"X-Amz-Checksum-Sha256", sha256.New},
		{"Content-Md5", md5.New},
	}
}

type sum struct {
	header string
	make   func() hash.Hash
}

// compare checks all bytes of an object against the checksum that came with them, if one
// did. That of a multipart upload is made of its parts' (it ends in "-" and their number)
// and is not compared; an ETag is a checksum only sometimes, and is never taken for one.
func compare(h http.Header, p []byte, name string) error {
	if h.Get("X-Amz-Checksum-Type") == "COMPOSITE" {
		return nil
	}
	for _, s := range sums() {
		said := h.Get(s.header)
		if said == "" || strings.Contains(said, "-") {
			continue
		}
		want, err := base64.StdEncoding.DecodeString(said)
		sum := s.make()
		if err != nil || len(want) != sum.Size() {
			continue
		}
		_, _ = sum.Write(p)
		if bytes.Equal(sum.Sum(nil), want) {
			return nil
		}
		return remote.Spoiled(name, s.header, p)
	}
	return nil
}
