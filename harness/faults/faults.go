// Package faults is the campaign of faults: a real dataset on real servers, read by the
// real loader through [slownet], which does what networks and stores do. A fault is either
// invisible, or an error with the expected code and the name of the object: never a wrong
// byte, a lost sample, or a hang.
//
//	loader ──► slownet ──► versitygw, nginx, fake-gcs-server, azurite, hubserver
//	   │          └ counts: the fault was met
//	   └ ids, order, bytes: those of the undisturbed stream, or the error of the table
//
// [Table] lists the faults. Each run of one has a proxy, a remote.Net and a loader of its
// own; the servers are shared, but for that of the Hub, of which each run has its own.
// `make test` runs each fault of S3, HTTP and the Hub once, and `make test-remote` those of
// the other stores; `make faults` runs all, each with 20 seeds if it is random, and writes
// bench/results/faults.json.
package faults

import (
	"fmt"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
	"github.com/stoker-data/stoker/internal/base/errs"
)

// Fault is a row of the table.
type Fault struct {
	Name string
	On   Store
	Data string // a folder of the lab's data, such as "tar"

	// Rules are the proxy's, by the seed of the run. They hold from the first batch on,
	// or, if Opening is set, while the dataset is opened too.
	Rules   func(seed uint64) []string
	Opening bool
	// Before is called before the dataset is opened, and During before its first batch.
	// What they start ends before they return, or with the run's Go.
	Before, During func(r *Run)
	// Met says whether the fault occurred, if no rule counts it.
	Met func(r *Run) bool

	TLS     func(l *Lab) *slownet.Certificate // the proxy's; nil: it speaks HTTP
	Named   bool                              // the proxy is reached by a name, which Run.Names has
	Profile string                            // of the keys; "": the environment's

	Deadline time.Duration // of fetch; 0: enough for the fault to end
	Code     errs.Code     // of the expected error; "": transparent
	Place    string        // a part of the error's location; "": the name of Data
	Known    string        // why bytes may differ without an error; "": they may not

	Random bool // seeds differ
	Long   bool // not in the short form
}

// Store is a kind of server.
type Store string

// The stores.
const (
	S3    Store = "s3"    // versitygw
	Web   Store = "web"   // nginx
	GCS   Store = "gcs"   // fake-gcs-server; tokens are those of a server that gives them
	Azure Store = "azure" // azurite, by the account's key and by signed URLs
	Entra Store = "entra" // azurite, by tokens
	Hub   Store = "hub"   // hubserver, with a storage at another address
)

// All is all stores, and Short those whose servers every machine has.
func All() []Store   { return []Store{S3, Web, Hub, GCS, Azure, Entra} }
func Short() []Store { return []Store{S3, Web, Hub} }

// Outcome is what became of a run.
type Outcome struct {
	Fault, Seed string
	Met         bool
	Transparent bool
	Undetected  bool      // as Fault.Known says
	Typed       errs.Code // of the error that was expected
	Wrong       string    // what was unexpected; "": nothing
	Took        time.Duration
	Said        []string // all that was shown to a user or stored: searched for secrets
}

func (o Outcome) String() string {
	return fmt.Sprintf("%s (seed %s): %s", o.Fault, o.Seed, o.Wrong)
}

// always are rules that do not depend on a seed.
func always(lines ...string) func(uint64) []string {
	return func(uint64) []string { return lines }
}
