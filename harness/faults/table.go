package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
	"github.com/stoker-data/stoker/internal/base/errs"
)

// shard is one in the middle of the data.
const shard = "shard-000002.tar"

// soon is the deadline of faults that do not end.
const soon = 4 * time.Second

// Table is all faults.
func Table() []Fault {
	return slices.Concat(connections(), answers(), stores(), listings(), clouds(), tokens(), hubs())
}

// some is one of the first few ranges of a run, and how many bytes of it come.
func some(of, fault string) func(uint64) []string {
	return func(seed uint64) []string {
		draw := rand.New(rand.NewPCG(seed, 1))
		return []string{fmt.Sprintf("range %s #%d %s=%d", of, 1+draw.IntN(3), fault, draw.IntN(30_000))}
	}
}

// first is a fault of one of the first few ranges.
func first(of, fault string) func(uint64) []string {
	return func(seed uint64) []string {
		return []string{fmt.Sprintf("range %s #%d %s", of, 1+rand.New(rand.NewPCG(seed, 1)).IntN(3), fault)}
	}
}

// troubled says whether the client has met anything.
func troubled(r *Run) bool { return r.Faults() > 0 }

// gone is the server gone for a while.
func gone(d time.Duration) func(r *Run) {
	return func(r *Run) {
		r.gone()
		r.Go(func(ctx context.Context) {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			r.back()
		})
	}
}

// connections are faults before there is an answer.
func connections() []Fault {
	return []Fault{
		{Name: "connections are refused for a second", On: S3, Data: "tar", Rules: first("*.tar", "refuse=1s"), Random: true},
		{Name: "connections are refused while it opens", On: S3, Data: "objects", Rules: always("list * #1 refuse=1s"), Opening: true},
		{Name: "the server is gone for 5 s", On: S3, Data: "tar", During: gone(5 * time.Second), Met: troubled},
		{Name: "the server is gone for 60 s", On: S3, Data: "tar", During: gone(time.Minute), Met: troubled, Long: true},
		{Name: "the web server is gone for 60 s", On: Web, Data: "tar", During: gone(time.Minute), Met: troubled, Long: true},
		{Name: "the server is gone for longer than the deadline", On: S3, Data: "tar", During: (*Run).gone, Met: troubled, Deadline: soon, Code: errs.Unreachable},
		{Name: "the web server is gone for longer than the deadline", On: Web, Data: "tar", During: (*Run).gone, Met: troubled, Deadline: soon, Code: errs.Unreachable},
		{Name: "the server is not there when it opens", On: S3, Data: "tar", Before: (*Run).gone, Met: troubled, Deadline: soon, Code: errs.Unreachable},
		{Name: "a black hole", On: S3, Data: "tar", Rules: first("*.tar", "blackhole"), Random: true},
		{Name: "a black hole of the web server", On: Web, Data: "tar", Rules: first("*.tar", "blackhole"), Random: true},
		{Name: "a black hole that stays", On: S3, Data: "tar", Rules: always("range " + shard + " #1+ blackhole"), Deadline: soon, Code: errs.Unreachable, Place: shard},
		{
			Name: "DNS fails and comes back", On: S3, Data: "tar", Named: true, Met: func(r *Run) bool { return r.Names.Asked(Host) > 1 && r.Faults() > 0 },
			Before: func(r *Run) {
				r.Names.Fail(slownet.Failing)
				r.Go(func(context.Context) {
					time.Sleep(2 * time.Second)
					r.Names.Fail(slownet.Works)
				})
			},
		},
		{
			Name: "DNS fails and stays so", On: S3, Data: "tar", Named: true, Met: func(r *Run) bool { return r.Names.Asked(Host) > 1 },
			Before: func(r *Run) { r.Names.Fail(slownet.Failing) }, Deadline: soon, Code: errs.Unreachable,
		},
		{
			Name: "DNS fails in an epoch", On: Web, Data: "tar", Named: true, Rules: first("*.tar", "refuse=500ms"), Random: true,
			During: func(r *Run) { r.Names.Fail(slownet.Failing) },
		},
		{
			Name: "a name that does not exist", On: Web, Data: "objects", Named: true, Met: func(r *Run) bool { return r.Names.Asked(Host) > 0 },
			Before: func(r *Run) { r.Names.Fail(slownet.Unknown) }, Deadline: soon, Code: errs.Unreachable,
		},
		{
			Name: "one dead address of two", On: S3, Data: "tar", Named: true,
			Before: func(r *Run) {
				alive := netip.MustParseAddrPort(r.Proxy.Addr())
				dead, err := slownet.NewDead(netip.MustParseAddr("127.0.0.2"), alive.Port())
				if err != nil {
					panic(err)
				}
				r.closer = append(r.closer, func() { _ = dead.Close() })
				r.Names.Set(Host, dead.Addr().Addr(), alive.Addr())
			},
			// All connections came to the living address, and the other was tried: it took as long.
			Met: func(r *Run) bool {
				return r.Proxy.Counts().Connections.Local["127.0.0.3"] > 0 && r.Names.Asked(Host) > 0
			},
		},
		{Name: "a certificate that has expired", On: S3, Data: "tar", TLS: func(l *Lab) *slownet.Certificate { return l.expired }, Met: shown, Code: errs.Unreachable, Deadline: soon},
		{Name: "a certificate of another host", On: S3, Data: "tar", TLS: func(l *Lab) *slownet.Certificate { return l.other }, Met: shown, Code: errs.Unreachable, Deadline: soon},
		{Name: "the web server's certificate has expired", On: Web, Data: "objects", TLS: func(l *Lab) *slownet.Certificate { return l.expired }, Met: shown, Code: errs.Unreachable, Deadline: soon},
		{Name: "a reset in the middle of a body over TLS", On: S3, Data: "tar", TLS: func(l *Lab) *slownet.Certificate { return l.good }, Rules: some("*.tar", "reset"), Random: true},
	}
}

// shown says whether the proxy's certificate was looked at, and no request followed.
func shown(r *Run) bool {
	c := r.Proxy.Counts()
	return c.Connections.Opened > 0 && c.Requests == 0
}

// asked says whether the object that was changed was asked for since.
func asked(r *Run) bool { return r.ranges() > r.before }

// answers are faults of answers.
func answers() (all []Fault) {
	for _, on := range []Store{S3, Web} {
		with := func(f Fault) {
			f.On = on
			f.Name += " (" + string(on) + ")"
			all = append(all, f)
		}
		for _, data := range []string{"tar", "objects", "parquet"} {
			of := map[string]string{"tar": "*.tar", "objects": "*.jpg", "parquet": "*.parquet"}[data]
			once := some
			if data == "parquet" { // which has few ranges
				once = func(of, fault string) func(uint64) []string {
					return func(seed uint64) []string {
						return []string{fmt.Sprintf("range %s #1 %s=%d", of, fault, rand.New(rand.NewPCG(seed, 1)).IntN(8))}
					}
				}
			}
			with(Fault{Name: "a reset in the middle of a body: " + data, Data: data, Rules: once(of, "reset"), Random: true})
			with(Fault{Name: "a connection that ends in the middle of a body: " + data, Data: data, Rules: once(of, "fin"), Random: true})
		}
		with(Fault{Name: "too many bytes", Data: "tar", Rules: first("*.tar", "extra=100"), Random: true})
		with(Fault{Name: "bytes after the end of an answer", Data: "objects", Rules: first("*.jpg", "stray=40"), Random: true})
		with(Fault{Name: "1 KB/s", Data: "tar", Rules: first("*.tar", "drip=1KB/s"), Random: true})
		with(Fault{Name: "a stall", Data: "tar", Rules: some("*.tar", "stall"), Random: true})
		with(Fault{Name: "a stall of an object", Data: "objects", Rules: some("*.jpg", "stall"), Random: true})
		with(Fault{Name: "200 for 206", Data: "tar", Rules: first("*.tar", "status=200"), Random: true})
		with(Fault{Name: "a shifted Content-Range", Data: "tar", Rules: first("*.tar", "shift=1"), Random: true})
		with(Fault{Name: "a Content-Range that is always shifted", Data: "tar", Rules: always("range " + shard + " shift=7"), Deadline: soon, Code: errs.Unreachable, Place: shard})
		with(Fault{Name: "gzip that was not requested", Data: "tar", Rules: first("*.tar", "gzip"), Random: true})
		with(Fault{Name: "200 for every range", Data: "tar", Rules: always("range " + shard + " status=200"), Deadline: soon, Code: errs.Unreachable, Place: shard})
		with(Fault{Name: "too many bytes in every answer", Data: "tar", Rules: always("range " + shard + " extra=100"), Deadline: soon, Code: errs.Unreachable, Place: shard})
		with(Fault{Name: "gzip in every answer", Data: "tar", Rules: always("range " + shard + " gzip"), Deadline: soon, Code: errs.Unreachable, Place: shard})
		with(Fault{Name: "a reset before every body", Data: "tar", Rules: always("range " + shard + " reset=0"), Deadline: soon, Code: errs.Unreachable, Place: shard})
		with(Fault{Name: "an answer that is late", Data: "tar", Rules: first("*.tar", "delay=700ms"), Random: true})
		for _, status := range []string{"500", "502", "504"} {
			with(Fault{Name: status + " now and then", Data: "tar", Rules: first("*.tar", "status="+status), Random: true})
		}
		with(Fault{Name: "500, 502 and 504 in turn", Data: "tar", Rules: always("range *.tar #2 status=500", "range *.tar #2 status=502", "range *.tar #2 status=504")})
		with(Fault{Name: "500 that stays", Data: "tar", Rules: always("range " + shard + " status=500"), Deadline: soon, Code: errs.Unreachable, Place: shard})
		with(Fault{Name: "SlowDown", Data: "tar", Rules: first("*.tar", "status=503 code=SlowDown"), Random: true})
		with(Fault{Name: "SlowDown with Retry-After", Data: "tar", Rules: first("*.tar", "status=503 code=SlowDown retry-after=1"), Random: true})
		with(Fault{Name: "429", Data: "tar", Rules: first("*.tar", "status=429"), Random: true})
		with(Fault{Name: "429 with Retry-After", Data: "tar", Rules: first("*.tar", "status=429 retry-after=1"), Random: true})
		with(Fault{Name: "SlowDown that stays", Data: "tar", Rules: always("range " + shard + " status=503 code=SlowDown"), Deadline: soon, Code: errs.Throttled, Place: shard})
		with(Fault{Name: "Retry-After beyond the deadline", Data: "tar", Rules: always("range " + shard + " status=429 retry-after=3600"), Deadline: soon, Code: errs.Throttled, Place: shard})
		with(Fault{Name: "a redirect in a loop", Data: "tar", Rules: always("range " + shard + " redirect=loop"), Deadline: soon, Place: shard, Code: map[Store]errs.Code{S3: errs.Config, Web: errs.Unreadable}[on]})
		with(Fault{Name: "a redirect to a link-local address", Data: "tar", Rules: always("range " + shard + " redirect=http://169.254.169.254"), Deadline: soon, Place: shard, Code: map[Store]errs.Code{S3: errs.Config, Web: errs.Unreadable}[on]})
		with(Fault{
			Name: "an object is replaced", Data: "tar", Deadline: soon, Code: errs.Changed, Place: shard,
			Before: (*Run).Own, Met: asked,
			During: func(r *Run) { r.mark(); r.Put(shard, append(r.Lab.Bytes("tar/"+shard), make([]byte, 1024)...)) },
		})
		with(Fault{
			Name: "an object is replaced by one of its size", Data: "tar", Deadline: soon, Code: errs.Changed, Place: shard,
			Before: (*Run).Own, Met: asked,
			During: func(r *Run) {
				r.mark()
				data := r.Lab.Bytes("tar/" + shard)
				data[len(data)/2] ^= 1
				r.Put(shard, data)
			},
		})
		with(Fault{
			Name: "an object is deleted", Data: "tar", Deadline: soon, Code: errs.Changed, Place: shard,
			Before: (*Run).Own, Met: asked, During: func(r *Run) { r.mark(); r.Remove(shard) },
		})
		with(Fault{Name: "a flipped byte, with the checksums of TFRecord", Data: "tfrecord", Rules: always("range *000001.tfrecord flip=2000"), Deadline: soon, Code: errs.Damaged, Place: "000001.tfrecord"})
		with(Fault{Name: "a flipped byte, with neither", Data: "tar", Rules: always("range " + shard + " flip=2000"), Deadline: soon, Known: "tar has no checksum of members, and a store sends none for a part"})
	}
	return all
}

// clock sets the clock of the client.
func clock(off time.Duration) func(r *Run) { return func(r *Run) { r.Off.Store(int64(off)) } }

// refused says whether the store itself has refused a request.
func refused(r *Run) bool { return r.Proxy.Counts().Statuses[403] > 0 }

// stores are what stores answer.
func stores() []Fault {
	return []Fault{
		{Name: "a flipped byte, with a checksum", On: S3, Data: "objects", Rules: first("*.jpg", "flip"), Random: true},
		{Name: "a byte that is always flipped, with a checksum", On: S3, Data: "objects", Rules: always("range 02-rocket.jpg flip"), Deadline: soon, Code: errs.Unreadable, Place: "02-rocket.jpg"},
		{Name: "credentials expired and renewed", On: S3, Data: "tar", Profile: "renewed", Opening: true, Rules: always("any * #1 status=400 code=ExpiredToken")},
		{Name: "credentials expire in an epoch", On: S3, Data: "tar", Rules: first("*.tar", "status=400 code=ExpiredToken"), Random: true},
		{Name: "credentials expired and not renewed", On: S3, Data: "tar", Profile: "stale", Opening: true, Rules: always("any * status=400 code=ExpiredToken"), Deadline: soon, Code: errs.Denied},
		{Name: "credentials refused", On: S3, Data: "tar", Rules: always("range " + shard + " status=403 code=AccessDenied"), Deadline: soon, Code: errs.Denied, Place: shard},
		{Name: "credentials refused while it opens", On: S3, Data: "tar", Opening: true, Rules: always("any * status=403 code=InvalidAccessKeyId"), Deadline: soon, Code: errs.Denied},
		{Name: "access refused (web)", On: Web, Data: "tar", Rules: always("range " + shard + " status=403"), Deadline: soon, Code: errs.Denied, Place: shard},
		{Name: "a clock 20 minutes late", On: S3, Data: "tar", Before: clock(-20 * time.Minute), Met: refused},
		{Name: "a clock 20 minutes ahead", On: S3, Data: "tar", Before: clock(20 * time.Minute), Met: refused},
		{Name: "a clock that goes wrong in an epoch", On: S3, Data: "tar", During: clock(20 * time.Minute), Met: refused},
		{Name: "a redirect to another region", On: S3, Data: "tar", Opening: true, Rules: always("any * #1 redirect=http://other.example status=301 code=PermanentRedirect region=eu-west-3")},
		{Name: "a redirect to another host (s3)", On: S3, Data: "tar", Rules: always("range " + shard + " redirect=http://other.example"), Deadline: soon, Code: errs.Config, Place: shard},
		{
			Name: "a redirect to another host (web)", On: Web, Data: "tar",
			During: func(r *Run) { _ = r.Proxy.SetRules("range " + shard + " redirect=" + r.server().URL) },
		},
		{Name: "a flipped byte, with a packing's digests (s3)", On: S3, Data: "packed", Rules: always("range " + shard + " flip=2000"), Deadline: soon, Code: errs.Damaged, Place: shard},
		{Name: "a flipped byte, with a packing's digests (web)", On: Web, Data: "packed", Rules: always("range " + shard + " flip=2000"), Deadline: soon, Code: errs.Damaged, Place: shard},
		{Name: "a flipped byte of the digests, with a checksum (s3)", On: S3, Data: "packed", Opening: true, Rules: always("range samples.xxh64 flip=20"), Deadline: soon, Code: errs.Unreadable, Place: "samples.xxh64"},
		{Name: "a flipped byte of the digests (web)", On: Web, Data: "packed", Opening: true, Rules: always("range samples.xxh64 flip=20"), Deadline: soon, Code: errs.Damaged, Place: "samples.xxh64"},
		{Name: "digests that break off", On: S3, Data: "packed", Opening: true, Rules: always("range samples.xxh64 #1 fin=100")},
	}
}

// listings are faults of listings.
func listings() []Fault {
	return []Fault{
		{Name: "a listing that is cut", On: S3, Data: "objects", Opening: true, Rules: always("list * #1 cut")},
		{Name: "a listing that is always cut", On: S3, Data: "objects", Opening: true, Rules: always("list * cut"), Deadline: soon, Code: errs.Unreachable},
		{Name: "a listing with every entry twice", On: S3, Data: "objects", Opening: true, Rules: always("list * double"), Deadline: soon, Code: errs.Unreadable},
		{Name: "a page of a folder that is cut (web)", On: Web, Data: "objects", Opening: true, Rules: always("list * #1 cut")},
		{Name: "a page of a folder that is always cut (web)", On: Web, Data: "objects", Opening: true, Rules: always("list * cut"), Deadline: soon, Code: errs.Unreadable},
		{Name: "a page of a folder with every entry twice (web)", On: Web, Data: "objects", Opening: true, Rules: always("list * double")},
		{Name: "a listing that is refused once", On: S3, Data: "objects", Opening: true, Rules: always("list * #1 status=503 code=SlowDown")},
		{
			Name: "a listing that changes between its pages", On: S3, Data: "many", Opening: true, Deadline: soon, Code: errs.Changed, Place: "0000.ppm",
			Rules: always("list * query=*continuation-token* #1 delay=1s"), Before: func(r *Run) {
				r.Own()
				r.removed("a/0000.ppm")
			},
		},
		{Name: "a second page that breaks", On: S3, Data: "many", Opening: true, Rules: always("list * query=*continuation-token* #1 reset=2000")},
	}
}
