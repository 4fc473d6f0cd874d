package gcs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// The metadata server of Google's machines. It is at an address that leads nowhere on
// other machines, where packets may be lost without an answer: it is asked last, once,
// and not for long. The library's own probe keeps its result for the process and waits
// longer.

const (
	machineProbe   = time.Second     // whether there is one, on a machine that does not look like Google's
	machineAnswers = 3 * time.Second // on one that does
)

// onGoogle says whether there is a metadata server.
func onGoogle(ctx context.Context) bool {
	patience := machineProbe
	product, _ := os.ReadFile("/sys/class/dmi/id/product_name")
	if os.Getenv("K_SERVICE") != "" || strings.HasPrefix(string(product), "Google") {
		patience = machineAnswers
	}
	_, err := machine(ctx, "instance/service-accounts/default/email", patience)
	return err == nil
}

// machine asks the metadata server, never through a proxy.
func machine(ctx context.Context, what string, patience time.Duration) (string, error) {
	host := os.Getenv("GCE_METADATA_HOST")
	if host == "" {
		host = "169.254.169.254"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+what, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	d := net.Dialer{}
	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return "", err
	case resp.Header.Get("Metadata-Flavor") != "Google":
		return "", fmt.Errorf("the server at %s is not a metadata server", host)
	case resp.StatusCode != http.StatusOK:
		return "", remote.Said{Status: resp.StatusCode, Message: strings.TrimSpace(string(body))}.Short(60)
	}
	return string(body), nil
}

// machineToken is a token of the machine's service account.
func machineToken(ctx context.Context) (string, time.Time, error) {
	body, err := machine(ctx, "instance/service-accounts/default/token?scopes="+url.QueryEscape(scope), machineAnswers)
	var t struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &t)
	}
	if s, ok := err.(remote.Said); ok && s.Status == http.StatusNotFound {
		return "", time.Time{}, errs.New(errs.Denied, "this Google Cloud machine has no service account").Because(s).Try("give it one, or: %s", help)
	}
	if err == nil && t.Token == "" {
		err = fmt.Errorf("its answer has no token")
	}
	if err != nil {
		return "", time.Time{}, &remote.Fault{Kind: remote.Unreachable, What: "the metadata server gave no token", Cause: err}
	}
	return t.Token, time.Now().Add(time.Duration(t.Seconds) * time.Second), nil
}
