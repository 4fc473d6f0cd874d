package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// The locations of an error come back byte for byte, by way of text that Python's file
// functions take (PEP 383), and what is for people shows every byte.
func TestLocationsOfAnyBytes(t *testing.T) {
	where := errs.Where{File: "/d\xff/é.jpg", Shard: "s\xfe.tar", Member: "m\x80", Field: "jp\xff", Offset: errs.Known(3), Sample: errs.Known(7), Moment: &errs.Moment{Epoch: 1, Step: 2}}
	b, err := json.Marshal(wire.FromError(errs.New(errs.Damaged, "it is \"d\xff\"").At(where).Because(errors.New("c\xff")).Try("é \xff")))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"code":"damaged","exception":"DataError","what":"it is \"d\\xff\"","where":{"file":"/d\udcff/é.jpg","shard":"s\udcfe.tar",` +
		`"member":"m\udc80","field":"jp\udcff","offset":3,"sample":7,"epoch":1,"step":2,"rank":0},"cause":"c\\xff","hint":"é \\xff"}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	var back wire.Error
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(where, back.Where); diff != "" {
		t.Error(diff)
	}
}
