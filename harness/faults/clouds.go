package faults

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// clouds are faults of the answers of GCS, Azure and the Hub's storage.
func clouds() (all []Fault) {
	for _, on := range []Store{GCS, Azure, Hub} {
		with := func(f Fault) {
			f.On = on
			f.Name += " (" + string(on) + ")"
			all = append(all, f)
		}
		// What rules call shards and pictures, one of which is always meant. The storage of
		// the Hub has them by their hashes.
		tars, pictures := "*.tar", "*.jpg"
		if on == Hub {
			tars, pictures = storage, storage
		}
		stays := func(name, fault string, code errs.Code) {
			f := Fault{Name: name, Data: "tar", Rules: always("range " + shard + " " + fault), Deadline: soon, Code: code, Place: shard}
			if on == Hub { // of all its files: nobody knows which comes first
				f.Rules, f.Place = always("range "+storage+" "+fault), ""
			}
			with(f)
		}
		busy := map[Store]string{GCS: "status=503", Azure: "status=503 code=ServerBusy", Hub: "status=503 code=SlowDown"}[on]

		with(Fault{Name: "the server is gone for 5 s", Data: "tar", During: gone(5 * time.Second), Met: troubled})
		with(Fault{Name: "the server is gone for 60 s", Data: "tar", During: gone(time.Minute), Met: troubled, Long: true})
		with(Fault{Name: "the server is gone for longer than the deadline", Data: "tar", During: (*Run).gone, Met: troubled, Deadline: soon, Code: errs.Unreachable})
		with(Fault{Name: "the server is not there when it opens", Data: "tar", Before: (*Run).gone, Met: troubled, Deadline: soon, Code: errs.Unreachable})
		with(Fault{Name: "connections are refused for a second", Data: "tar", Rules: first(tars, "refuse=1s"), Random: true})
		with(Fault{Name: "a black hole", Data: "tar", Rules: first(tars, "blackhole"), Random: true})

		with(Fault{Name: "a reset in the middle of a body: tar", Data: "tar", Rules: some(tars, "reset"), Random: true})
		with(Fault{Name: "a reset in the middle of a body: objects", Data: "objects", Rules: some(pictures, "reset"), Random: true})
		with(Fault{Name: "a connection that ends in the middle of a body: tar", Data: "tar", Rules: some(tars, "fin"), Random: true})
		with(Fault{Name: "a connection that ends in the middle of a body: objects", Data: "objects", Rules: some(pictures, "fin"), Random: true})
		with(Fault{Name: "too many bytes", Data: "tar", Rules: first(tars, "extra=100"), Random: true})
		with(Fault{Name: "bytes after the end of an answer", Data: "objects", Rules: first(pictures, "stray=40"), Random: true})
		with(Fault{Name: "1 KB/s", Data: "tar", Rules: first(tars, "drip=1KB/s"), Random: true})
		with(Fault{Name: "a stall", Data: "tar", Rules: some(tars, "stall"), Random: true})
		with(Fault{Name: "200 for 206", Data: "tar", Rules: first(tars, "status=200"), Random: true})
		with(Fault{Name: "a shifted Content-Range", Data: "tar", Rules: first(tars, "shift=1"), Random: true})
		with(Fault{Name: "gzip that was not requested", Data: "tar", Rules: first(tars, "gzip"), Random: true})
		for _, status := range []string{"500", "502", "504"} {
			with(Fault{Name: status + " now and then", Data: "tar", Rules: first(tars, "status="+status), Random: true})
		}
		with(Fault{Name: "500, 502 and 504 in turn", Data: "tar", Rules: always("range "+tars+" #2 status=500", "range "+tars+" #2 status=502", "range "+tars+" #2 status=504")})
		with(Fault{Name: "503", Data: "tar", Rules: first(tars, busy), Random: true})
		with(Fault{Name: "503 with Retry-After", Data: "tar", Rules: first(tars, busy+" retry-after=1"), Random: true})
		with(Fault{Name: "429", Data: "tar", Rules: first(tars, "status=429"), Random: true})
		with(Fault{Name: "429 with Retry-After", Data: "tar", Rules: first(tars, "status=429 retry-after=1"), Random: true})

		stays("a Content-Range that is always shifted", "shift=7", errs.Unreachable)
		stays("200 for every range", "status=200", errs.Unreachable)
		stays("too many bytes in every answer", "extra=100", errs.Unreachable)
		stays("gzip in every answer", "gzip", errs.Unreachable)
		stays("a reset before every body", "reset=0", errs.Unreachable)
		stays("500 that stays", "status=500", errs.Unreachable)
		stays("429 that stays", "status=429", errs.Throttled)
		stays("Retry-After beyond the deadline", "status=429 retry-after=3600", errs.Throttled)
		stays("a redirect in a loop", "redirect=loop", map[Store]errs.Code{GCS: errs.Unreadable, Azure: errs.Unreadable, Hub: errs.Denied}[on])
		stays("a redirect to a link-local address", "redirect=http://169.254.169.254", errs.Unreadable)
		stays("access refused", "status=403", errs.Denied)

		with(Fault{Name: "a flipped byte, with a checksum", Data: "objects", Rules: first(pictures, "flip"), Random: true})
		if on == Hub {
			with(Fault{Name: "bytes that do not have their hash", Data: "objects", During: func(r *Run) { r.Hub.Corrupt(r.Lab.Bytes("objects/b/02-rocket.jpg")) }, Met: troubled, Deadline: soon, Code: errs.Unreadable})
		} else {
			with(Fault{Name: "a byte that is always flipped, with a checksum", Data: "objects", Rules: always("range 02-rocket.jpg flip"), Deadline: soon, Code: errs.Unreadable, Place: "02-rocket.jpg"})
		}
		flipped := always("range " + shard + " flip=2000")
		if on == Hub {
			flipped = always("range " + storage + " flip=2000")
		}
		with(Fault{Name: "a flipped byte, with a packing's digests", Data: "packed", Rules: flipped, Deadline: soon, Code: errs.Damaged})
		with(Fault{Name: "a flipped byte, with neither", Data: "tar", Rules: flipped, Deadline: soon, Known: "tar has no checksum of members, and a store sends none for a part"})

		if on != Hub {
			with(Fault{
				Name: "an object is replaced", Data: "tar", Deadline: soon, Code: errs.Changed, Place: shard, Before: (*Run).Own, Met: asked,
				During: func(r *Run) { r.mark(); r.Put(shard, append(r.Lab.Bytes("tar/"+shard), make([]byte, 1024)...)) },
			})
			with(Fault{
				Name: "an object is replaced by one of its size", Data: "tar", Deadline: soon, Code: errs.Changed, Place: shard, Before: (*Run).Own, Met: asked,
				During: func(r *Run) {
					r.mark()
					data := r.Lab.Bytes("tar/" + shard)
					data[len(data)/2] ^= 1
					r.Put(shard, data)
				},
			})
			with(Fault{
				Name: "an object is deleted", Data: "tar", Deadline: soon, Code: errs.Changed, Place: shard, Before: (*Run).Own, Met: asked,
				During: func(r *Run) { r.mark(); r.Remove(shard) },
			})
		}

		with(Fault{Name: "a listing that is cut", Data: "objects", Opening: true, Rules: always("list * #1 cut")})
		with(Fault{Name: "a listing that is always cut", Data: "objects", Opening: true, Rules: always("list * cut"), Deadline: soon, Code: errs.Unreachable})
		twice := Fault{Name: "a listing with every entry twice", Data: "objects", Opening: true, Rules: always("list * double"), Deadline: soon, Code: errs.Unreadable}
		if on == Hub { // whose pages have no order: an entry that is there already is the same one
			twice.Code = ""
		}
		with(twice)
		with(Fault{Name: "a listing that is refused once", Data: "objects", Opening: true, Rules: always("list * #1 " + busy)})
	}
	return append(all, Fault{Name: "a second page that breaks (hub)", On: Hub, Data: "many", Opening: true, Rules: always("list * query=*cursor* #1 reset=2000")})
}

// removed removes an object as soon as the rules have had their effect.
func (r *Run) removed(name string) {
	r.Go(func(ctx context.Context) {
		for ctx.Err() == nil && !r.ruled() {
			time.Sleep(10 * time.Millisecond)
		}
		r.Remove(name)
	})
}

// tokens are faults of credentials that a server gives.
func tokens() (all []Fault) {
	for _, on := range []Store{GCS, Entra} {
		answer := map[Store]string{GCS: "status=401", Entra: "status=401 code=InvalidAuthenticationInfo"}[on]
		with := func(f Fault) {
			f.On, f.Data = on, "tar"
			f.Name += " (" + string(on) + ")"
			all = append(all, f)
		}
		with(Fault{Name: "credentials expired and renewed", Opening: true, Rules: always("any * #1 " + answer)})
		with(Fault{Name: "credentials expire in an epoch", Rules: first("*.tar", answer), Random: true})
		with(Fault{Name: "credentials refused", Rules: always("range " + shard + " " + answer), Deadline: soon, Code: errs.Denied, Place: shard})
		with(Fault{Name: "credentials refused while it opens", Opening: true, Rules: always("any * " + answer), Deadline: soon, Code: errs.Denied})
	}
	of := func(f Fault) { f.On = Entra; f.Data = "tar"; all = append(all, f) }
	of(Fault{Name: "a reset in the middle of a body, read by a token (entra)", Rules: some("*.tar", "reset"), Random: true})
	of(Fault{Name: "the server is gone for 5 s (entra)", During: gone(5 * time.Second), Met: troubled})
	return append(all,
		Fault{Name: "a clock 20 minutes late (azure)", On: Azure, Data: "objects", Opening: true, Rules: always("any * skew=0s"), Before: clock(-20 * time.Minute)},
		Fault{Name: "a clock 20 minutes ahead (azure)", On: Azure, Data: "objects", Opening: true, Rules: always("any * skew=0s"), Before: clock(20 * time.Minute)},
		Fault{Name: "a clock that goes wrong in an epoch (azure)", On: Azure, Data: "objects", Rules: always("any * skew=0s"), During: clock(20 * time.Minute)},
		Fault{Name: "a key that is refused (azure)", On: Azure, Data: "objects", Opening: true, Rules: always("any * status=403 code=AuthenticationFailed"), Deadline: soon, Code: errs.Denied},
	)
}

// storage is what rules call a file in the Hub's storage.
const storage = "xet-bridge/*"

// resolvedTwice says whether the Hub was asked twice where a file is.
func resolvedTwice(r *Run) bool {
	asked := map[string]int{}
	for _, one := range r.Hub.Seen() {
		if one.Kind == "resolve" {
			asked[one.Path]++
		}
	}
	return slices.Max(slices.Collect(maps.Values(asked))) > 1
}

// hubs are faults of the Hub alone: of what leads to the bytes.
func hubs() []Fault {
	return []Fault{
		{Name: "the Hub's storage is gone for 5 s", On: Hub, Data: "tar", Met: troubled, During: func(r *Run) {
			r.proxies[1].Pause()
			r.Go(func(context.Context) {
				time.Sleep(5 * time.Second)
				_ = r.proxies[1].Resume()
			})
		}},
		{Name: "a signature that has ended", On: Hub, Data: "tar", Rules: first(storage, "status=403"), Random: true},
		{Name: "all signatures end in an epoch", On: Hub, Data: "tar", During: func(r *Run) { r.Hub.Expire() }, Met: func(r *Run) bool { return r.proxies[1].Counts().Statuses[403] > 0 }},
		{
			Name: "signatures that end after a second", On: Hub, Data: "tar", Met: resolvedTwice,
			Before: func(r *Run) { r.Hub.Life = time.Second }, During: func(*Run) { time.Sleep(1500 * time.Millisecond) },
		},
		{Name: "a Hub that redirects in a loop", On: Hub, Data: "objects", Rules: always("range *.jpg redirect=loop"), Deadline: soon, Code: errs.Unreadable},
		{Name: "a Hub that redirects to a link-local address", On: Hub, Data: "objects", Rules: always("range *.jpg redirect=http://169.254.169.254 status=302"), Deadline: soon, Code: errs.Unreadable},
		{Name: "a Hub that answers 500 now and then", On: Hub, Data: "objects", Rules: first("*.jpg", "status=500"), Random: true},
		{Name: "a Hub that answers 429 now and then", On: Hub, Data: "objects", Rules: first("*.jpg", "status=429 retry-after=1"), Random: true},
		{Name: "a Hub that does not say which commit it is", On: Hub, Data: "tar", Opening: true, Rules: always("get * #1 cut=0")},
		{Name: "a token that is renewed in its file", On: Hub, Data: "objects", Met: func(r *Run) bool { return r.Proxy.Counts().Statuses[401] > 0 }, During: func(r *Run) {
			r.renew()
			r.Hub.Forget(r.Lab.hub.first)
		}},
		{Name: "a token that is forgotten", On: Hub, Data: "objects", Deadline: soon, Code: errs.Denied, Met: func(r *Run) bool { return r.Proxy.Counts().Statuses[401] > 0 }, During: func(r *Run) {
			r.Hub.Forget(r.Lab.hub.first)
			r.Hub.Forget(r.Lab.hub.next)
		}},
		{Name: "another commit replaces a shard", On: Hub, Data: "tar", Met: asked, During: func(r *Run) { r.mark(); r.Put(shard, []byte("other bytes")) }},
		{Name: "another commit deletes a shard", On: Hub, Data: "tar", Met: asked, During: func(r *Run) { r.mark(); r.Remove(shard) }},
	}
}
