// Package servers starts real servers for tests: of S3, HTTP, Google Cloud Storage, Azure
// Blob Storage, and of AWS's other services. tools/servers.sh builds or installs them; a
// test that needs one that is not there is skipped, as internal/testdata/skips.txt says.
package servers
