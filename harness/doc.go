// Package harness is the module of the test harnesses: programs and packages that try
// stoker from outside, and what only they depend on (such as go-fuse), which is
// not a dependency of the product. Its path is below the product's, so that it may import
// internal packages; nothing of the product imports it (internal/floors_test.go).
//
//   - [github.com/stoker-data/stoker/harness/slowfs]: a folder mounted read-only, as slow
//     as requested, which counts what it serves.
//   - [github.com/stoker-data/stoker/harness/slownet]: a proxy before a server, as slow and
//     as broken as requested, which counts what passes.
//   - [github.com/stoker-data/stoker/harness/faults]: the campaign of faults: a dataset read
//     through slownet, whatever that does to it.
//   - [github.com/stoker-data/stoker/harness/score]: the doctor, on jobs whose faults are
//     known.
//
// Servers and proxies that tests talk to (object stores, slow or broken networks, remote
// workers) go here, too, a package each. make check and make test cover this module as
// they do the product's; its go.mod names the product by a replace directive, so that
// both are always of one commit.
package harness
