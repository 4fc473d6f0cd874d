package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// An error on its way to a client or into a report has no secrets.
func TestErrorsOnTheWayHaveNoSecrets(t *testing.T) {
	const url = "https://u:HUSH@h/x.tar?sig=HUSH&v=2"
	e := errs.New(errs.Denied, "the server refused %s", url).At(errs.Where{File: url, Shard: url, Member: url}).Because(errors.New("Get "+url)).Try("open %s", url)
	text, err := json.Marshal(FromError(e))
	if err != nil || strings.Contains(string(text), "HUSH") || strings.Count(string(text), "https://h/x.tar?v=2") != 6 {
		t.Errorf("%s, %v", text, err)
	}
	if e.Where.File != url {
		t.Error("the error itself was changed")
	}
}
