// Package servers starts real servers for tests: of S3, HTTP, Google Cloud Storage, Azure
// Blob Storage, and of AWS's other services. tools/servers.sh builds or installs them. A
// test that needs one that is not there is skipped, as internal/testdata/skips.txt
// declares; all but versitygw and nginx are for `make test-remote` only.
//
// Each server listens on a free port of 127.0.0.1 when its function returns, keeps what it
// stores in a folder of the test's, and ends with the test, also if that is killed.
// A test may start several: versitygw, nginx and fake-gcs-server listen after 0.1 s and
// take 10 to 40 MB, moto after 0.8 s with 80 MB, Azurite after 1.5 s with 150 MB.
//
// What a service does and its server here does not has to be tested in another way, by a
// server of the test's own or by a proxy that changes answers. This was found by requests
// to the versions that tools/servers.sh pins.
//
// # S3: versitygw
//
//   - If-Match and If-Unmodified-Since are honoured on ranges (412); an ETag may be quoted or
//     not. If-Range is ignored. ETags are MD5, or of parts, with "-N".
//   - A file that was not put through it has no ETag: none in headers, an empty one in
//     listings. The content type is guessed. Hard links and copies are such files; of a
//     symbolic link, listings give the link's own size. What is written into a file that was
//     put keeps the old ETag, and what is renamed over it has none.
//   - Checksums (x-amz-checksum-mode) are sent if the answer is the whole object, of a range
//     too, never for a part. What is put gets CRC64NVME.
//   - Listings are sorted by the bytes of the whole key. The token of the next page is the
//     last key in plain text, and every text is accepted as one. At most 1,000 keys a page.
//     encoding-type=url is ignored: control bytes are written into the XML as they are.
//   - Keys are paths: "a//b" becomes a/b, "a/../b" becomes b, "a" and "a/b" cannot both
//     exist (409), a key has at most 1,023 bytes and each part of it 255.
//   - An unsatisfiable range is 416 with the size in XML; a malformed one, or several at
//     once, is 200 with the whole object, which AWS does, too.
//   - An unknown access key is 404 XAdminUserNotFound (AWS: 403 InvalidAccessKeyId), a session
//     token 400 InvalidToken: it has no temporary keys. Another region is 400
//     AuthorizationHeaderMalformed with the right one; there are no redirects to it. A wrong
//     secret is SignatureDoesNotMatch, no key AccessDenied. Errors of HEAD have no body.
//   - Buckets in host names need S3Options.Domain. Versions need --versioning-dir.
//   - TLS without HTTP/2.
//
// # Google Cloud Storage: fake-gcs-server
//
//   - generation= of another version is 404, as it is there. ifGenerationMatch and If-Match
//     are ignored on reads, and honoured on writes.
//   - Ranges, 416 with Content-Range, X-Goog-Generation and X-Goog-Hash (of the whole object,
//     also on ranges) are as they should be.
//   - fields= and matchGlob= are ignored: listings have everything. The token of the next page
//     is that page's first name.
//   - A missing bucket and a missing object have the same 404; for bytes, the body is text,
//     not JSON. Tokens are not looked at.
//   - A file that was not put through it is 404, and so is every listing that it is in. The
//     server has no Dir for that reason.
//   - Keys are paths: "a//b" becomes a/b; below an object, a put is 500.
//   - TLS with HTTP/2 for clients that offer it. A put takes memory of twice its size.
//
// # Azure Blob Storage: Azurite
//
//   - If-Match and If-Unmodified-Since are honoured on ranges (412 ConditionNotMet). ETags
//     change with each put. In listings of blobs they have no quotes, in headers they have.
//   - x-ms-range-get-content-md5 is answered; ...-crc64 is 500 FeatureNotSupported.
//   - A range from the end on is 206 with nothing and "bytes 36-35/36" (Azure: 416
//     InvalidRange), also of an empty blob. A range of the last bytes (bytes=-3) is 500.
//   - versionid= is ignored. A name with a control byte makes each listing 500.
//   - No key, a wrong one: 403 AuthorizationFailure (Azure: 401 NoAuthenticationInformation,
//     403 AuthenticationFailed).
//   - Listings are sorted by bytes; the marker is the last name in plain text.
//   - Connections that are idle for 5 s are closed. TLS without HTTP/2.
//
// # HTTP: nginx
//
//   - ETags are times in seconds and sizes: what replaces a file of the same size in the same
//     second has its ETag. If-Match, If-Unmodified-Since and If-Range are honoured; several
//     ranges are multipart/byteranges.
//   - With Gzip, who accepts it gets a weak ETag, no length, and 200 for a range.
//   - A folder without a slash is 301 to the same host as in the request, with the server's
//     port, which leads a client past a proxy.
//   - HTML pages shorten names in the text of links, not in their addresses; JSON has
//     "name", "type" ("file", "directory"), "mtime" as in headers, and "size" of files.
//     Links in the folder are followed.
//   - TLS without HTTP/2.
//
// # AWS: moto
//
//   - AssumeRole and AssumeRoleWithWebIdentity accept anything, and give keys for at least
//     15 minutes, which versitygw does not know. No signature is checked.
//   - Instance metadata are a role "default-role" with fixed keys for a day, without the
//     container's address; keys that expire need a server of the test's own.
//   - Its S3 has If-Match, ranges, 416, and opaque tokens of pages, and no checksums.
package servers
