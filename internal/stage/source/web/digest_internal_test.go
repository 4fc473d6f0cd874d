package web

import (
	"net/http"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// A body without a checksum costs nothing: not a byte of it is looked at.
func TestBodiesWithoutAChecksumAreNotRead(t *testing.T) {
	body, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(body) }()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	looked := func(h http.Header, whole bool) (did bool) {
		defer func() { did = recover() != nil }()
		if err := compare("http://h/x", h, body, whole); err != nil {
			t.Error(err)
		}
		return false
	}
	for _, whole := range []bool{false, true} {
		if looked(http.Header{"Etag": {"x"}}, whole) || looked(http.Header{"Content-Digest": {"sha-512=:AA==:"}, "Content-Md5": {"?"}}, whole) {
			t.Errorf("a body (whole: %v) without a checksum was read", whole)
		}
	}
	sum := "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
	if !looked(http.Header{"Content-Digest": {sum}}, false) || !looked(http.Header{"Digest": {"SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}}, true) {
		t.Error("a body with a checksum was not read")
	}
}
