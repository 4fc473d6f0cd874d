package azure_test

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/azure"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// tokens is a server that gives tokens: an authority of Entra's, and the identity of a
// machine. The container takes the newest one only.
type tokens struct {
	t     *testing.T
	given atomic.Int64
	asked map[string]int
	fails bool
}

func (k *tokens) newest() string { return fmt.Sprintf("HUSH-token-%d", k.given.Load()) }

func (k *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		at := "https://" + r.Host + "/tenant"
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": at + "/v2.0", "authorization_endpoint": at + "/oauth2/v2.0/authorize", "token_endpoint": at + "/oauth2/v2.0/token"})
		return
	}
	_ = r.ParseForm()
	kind := ""
	switch {
	case r.Header.Get("X-Identity-Header") == "HUSH-header" && strings.Contains(r.Form.Get("resource"), "https://storage.azure.com"):
		kind = "managed identity"
	case r.Form.Get("client_assertion") == "HUSH-assertion" && strings.Contains(r.Form.Get("scope"), "https://storage.azure.com/.default"):
		kind = "workload identity"
	case r.Form.Get("client_secret") == "HUSH-secret":
		kind = "environment"
	}
	if kind == "" || k.fails {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}`))
		return
	}
	k.asked[kind]++
	k.given.Add(1)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": k.newest(), "expires_in": 3600, "expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix()), "token_type": "Bearer", "resource": "https://storage.azure.com"})
}

// Each kind of credentials gives a token, which all requests share until it is refused;
// then there is another one, once.
func TestTokens(t *testing.T) {
	for _, kind := range []string{"environment", "workload identity", "managed identity"} {
		t.Run(kind, func(t *testing.T) {
			a, access := serve(t, map[string]blob{"x": {data: []byte("data"), etag: "1"}})
			access.Storage.Anonymous = false
			k := &tokens{t: t, asked: map[string]int{}}
			authority := httptest.NewTLSServer(k)
			defer authority.Close()
			t.Setenv("AWS_CA_BUNDLE", stagetest.Put(t, t.TempDir()+"/ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})))
			t.Setenv("AZURE_AUTHORITY_HOST", authority.URL+"/")
			t.Setenv("AZURE_TENANT_ID", "tenant")
			t.Setenv("AZURE_CLIENT_ID", "client")
			switch kind {
			case "environment":
				t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
				t.Setenv("AZURE_CLIENT_SECRET", "HUSH-secret")
			case "workload identity":
				t.Setenv("AZURE_TOKEN_CREDENTIALS", "WorkloadIdentityCredential")
				t.Setenv("AZURE_FEDERATED_TOKEN_FILE", stagetest.Put(t, t.TempDir()+"/token", []byte("HUSH-assertion")))
			case "managed identity":
				t.Setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
				machine := httptest.NewServer(k)
				defer machine.Close()
				t.Setenv("IDENTITY_ENDPOINT", machine.URL)
				t.Setenv("IDENTITY_HEADER", "HUSH-header")
			}
			allowed := true
			a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
				if allowed && r.Header.Get("Authorization") == "Bearer "+k.newest() {
					return false
				}
				w.Header().Set("Www-Authenticate", "Bearer authorization_uri=https://login.microsoftonline.com/theirs/oauth2/authorize resource_id=https://storage.azure.com")
				refuse(w, 401, "InvalidAuthenticationInfo", "Lifetime validation failed. The token is expired.")
				return true
			}
			src := open(t, access)
			for range 3 {
				if b, err := readAll(t, src, "az://photos/x"); err != nil || string(b) != "data" {
					t.Fatalf("%q, %v (%s)", b, err, errs.From(err).Hint)
				}
			}
			if k.asked[kind] != 1 {
				t.Errorf("tokens were asked for: %v", k.asked)
			}
			k.given.Add(1) // what there is has expired
			if b, err := readAll(t, src, "az://photos/x"); err != nil || string(b) != "data" {
				t.Fatalf("with a token that has expired: %q, %v", b, err)
			}
			if k.asked[kind] != 2 {
				t.Errorf("tokens were asked for: %v", k.asked)
			}
			allowed = false
			_, err := readAll(t, src, "az://photos/x")
			if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "Storage Blob Data Reader") || !strings.Contains(e.Hint, "/theirs/") || k.asked[kind] != 3 {
				t.Errorf("refused for good: %v (%s), %v", err, e.Hint, k.asked)
			}
			k.fails = true
			_, err2 := readAll(t, open(t, access), "az://photos/x")
			if errs.CodeOf(err2) != errs.Denied {
				t.Errorf("no token is given: %v (%s)", err2, errs.From(err2).Hint)
			}
			for _, err := range []error{err, err2} {
				if all := err.Error() + errs.From(err).Hint; strings.Contains(all, "HUSH") {
					t.Errorf("the error has a secret: %s", all)
				}
			}
		})
	}
}

// Without credentials the error says where they were looked for, and public data are read.
func TestNoCredentials(t *testing.T) {
	a, access := serve(t, map[string]blob{"x": {data: []byte("data"), etag: "1"}})
	access.Storage.Anonymous = false
	if b, err := readAll(t, open(t, access), "az://photos/x"); err != nil || string(b) != "data" {
		t.Errorf("public data: %q, %v", b, err)
	}
	var authorization string
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		authorization = r.Header.Get("Authorization")
		refuse(w, 409, "PublicAccessNotPermitted", "Public access is not permitted on this storage account.")
		return true
	}
	denied := func(what, says string) {
		t.Helper()
		_, err := readAll(t, open(t, access), "az://photos/x")
		if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, says) || strings.Contains(err.Error()+e.Hint, "HUSH") {
			t.Errorf("%s: %v (%s)", what, err, e.Hint)
		}
	}
	denied("nothing", "AZURE_STORAGE_SAS_TOKEN (not set), EnvironmentCredential: missing environment variable AZURE_TENANT_ID")
	// The key of one account is not used for another.
	t.Setenv("AZURE_STORAGE_ACCOUNT", "another")
	t.Setenv("AZURE_STORAGE_KEY", base64.StdEncoding.EncodeToString([]byte("HUSH")))
	denied("the key of another account", "are of the account another")
	if authorization != "" {
		t.Errorf("the request had %s", authorization)
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", account)
	denied("the key of the account", "signed with the key of AZURE_STORAGE_KEY")
	if !strings.HasPrefix(authorization, "SharedKey "+account+":") {
		t.Errorf("the request had %s", authorization)
	}
	t.Setenv("AZURE_STORAGE_KEY", "HUSH!")
	if _, err := readAll(t, open(t, access), "az://photos/x"); errs.CodeOf(err) != errs.Denied || strings.Contains(err.Error(), "HUSH") || !strings.Contains(err.Error(), "base64") {
		t.Errorf("a key that is none: %v", err)
	}
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("MY_TOKEN", "")
	access.Storage.TokenEnv = "MY_TOKEN"
	if _, err := readAll(t, open(t, access), "az://photos/x"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "MY_TOKEN") {
		t.Errorf("a variable that is not set: %v", err)
	}
	t.Setenv("MY_TOKEN", "HUSH")
	denied("a token of a variable", "the token of MY_TOKEN")
	if authorization != "Bearer HUSH" {
		t.Errorf("the request had %s", authorization)
	}
	access.Storage.EndpointURL = "http://0.0.0.0" + access.Storage.EndpointURL[strings.LastIndexByte(access.Storage.EndpointURL, ':'):]
	denied("in the clear", "not sent over plain HTTP")
	if authorization != "" {
		t.Errorf("in the clear, the request had %s", authorization)
	}
}

// A key or a signature of no named account is that of the only account that the user wrote.
// Whatever else a table names gets neither.
func TestSecretsOfAnAccountThatIsNotNamed(t *testing.T) {
	ca := servers.CA(t)
	cert := ca.Issue("*.blob.core.windows.net")
	pair, err := tls.LoadX509KeyPair(cert.File, cert.Key)
	stagetest.Must(t, err)
	var mu sync.Mutex
	given := map[string]bool{} // hosts that were asked, and whether they got a secret
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		secret := r.URL.Query().Get("sig") != "" || strings.HasPrefix(r.Header.Get("Authorization"), "SharedKey ")
		given[r.Host] = given[r.Host] || secret
		if !secret {
			refuse(w, 409, "PublicAccessNotPermitted", "Public access is not permitted on this storage account.")
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("x-ms-blob-type", "BlockBlob")
		http.ServeContent(w, r, "", time.Unix(1e9, 0), strings.NewReader("data"))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()
	at := server.Listener.Addr().String()
	cloud.Store(&at)
	defer cloud.Store(nil)

	const mine, more, stranger = "abfss://c@mine.dfs.core.windows.net", "abfss://c@more.dfs.core.windows.net", "abfss://c@stranger.dfs.core.windows.net"
	for secret, value := range map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sv=2021-12-02&sig=HUSH", "AZURE_STORAGE_KEY": base64.StdEncoding.EncodeToString([]byte("HUSH"))} {
		for _, c := range []struct {
			written []string
			named   string // AZURE_STORAGE_ACCOUNT
			name    string
			says    string // of the error; "": it is read
			got     string // the host that got a secret
		}{
			{[]string{mine + "/d"}, "", mine + "/d/x", "", "mine"},
			{[]string{mine + "/d", "abfss://{e,f}@mine.dfs.core.windows.net"}, "", mine + "/d/x", "", "mine"},
			{[]string{mine + "/d"}, "", stranger + "/x", "are of the account mine", ""},
			{[]string{mine + "/d", more + "/d"}, "", mine + "/d/x", "set AZURE_STORAGE_ACCOUNT", ""},
			{[]string{"abfss://c@{mine,more}.dfs.core.windows.net/d"}, "", mine + "/d/x", "set AZURE_STORAGE_ACCOUNT", ""},
			{[]string{mine + "/d", more + "/d"}, "more", more + "/d/x", "", "more"},
			{[]string{mine + "/d", more + "/d"}, "more", mine + "/d/x", "are of the account more", ""},
			{nil, "", stranger + "/x", "set AZURE_STORAGE_ACCOUNT", ""},
			{nil, "mine", stranger + "/x", "are of the account mine", ""},
		} {
			nobody(t)
			t.Setenv("AWS_CA_BUNDLE", ca.File)
			t.Setenv(secret, value)
			t.Setenv("AZURE_STORAGE_ACCOUNT", c.named)
			clear(given)
			netw := remote.NewNet(remote.Options{})
			m, err := mux.Of([]source.Scheme{azure.Scheme("abfss", netw)}, []source.Place{{Names: c.written, Access: source.Access{Deadline: 5 * time.Second}}})
			stagetest.Must(t, err)
			st, err := m.Stat(t.Context(), c.name)
			if e := errs.From(err); c.says == "" && (err != nil || st.Size != 4) || c.says != "" && (e.Code != errs.Denied || !strings.Contains(e.Hint, c.says) || strings.Contains(err.Error()+e.Hint, "HUSH")) {
				t.Errorf("%s, %q written, %s: %+v, %v (%s)", secret, c.written, c.name, st, err, e.Hint)
			}
			for host, got := range given {
				if got != (host == c.got+".blob.core.windows.net") {
					t.Errorf("%s, %q written, %s: %s got a secret: %v", secret, c.written, c.name, host, got)
				}
			}
			_ = m.Close()
			netw.Close()
		}
	}
}

// A clock that is off is corrected from the answer, for all later requests.
func TestClock(t *testing.T) {
	a, access := serve(t, map[string]blob{"x": {data: []byte("data"), etag: "1"}})
	access.Storage.Anonymous = false
	t.Setenv("AZURE_STORAGE_ACCOUNT", account)
	t.Setenv("AZURE_STORAGE_KEY", key)
	theirs := time.Now().Add(-20 * time.Minute) // what the store's clock says
	refused := 0
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		date, err := http.ParseTime(r.Header.Get("X-Ms-Date"))
		stagetest.Must(t, err)
		w.Header().Set("Date", theirs.UTC().Format(http.TimeFormat))
		if date.Sub(theirs).Abs() < 15*time.Minute {
			return false
		}
		refused++
		refuse(w, 403, "AuthenticationFailed", "Server failed to authenticate the request.")
		return true
	}
	src := open(t, access)
	var wg sync.WaitGroup
	for range 8 { // signed before the first answer, and after it
		wg.Go(func() {
			for range 3 {
				if b, err := readAll(t, src, "az://photos/x"); err != nil || string(b) != "data" {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
	wg.Wait()
	if refused == 0 || refused > 8 {
		t.Errorf("%d requests were refused", refused)
	}
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Date", theirs.UTC().Format(http.TimeFormat))
		refuse(w, 403, "AuthenticationFailed", "Server failed to authenticate the request.")
		return true
	}
	if _, err := readAll(t, src, "az://photos/x"); errs.CodeOf(err) != errs.Denied {
		t.Errorf("refused with the right time: %v", err)
	}
}

// Signatures in URLs are sent, and no error, name or listing below the source shows them to
// anybody but who gave them.
func TestSignaturesInURLs(t *testing.T) {
	const sig = "sv=2021-12-02&sp=rl&sig=HUSH%2B%3D"
	a, access := serve(t, map[string]blob{"d/x": {data: []byte("data"), etag: "1"}})
	access.Storage.Anonymous = false
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("sig") == "HUSH+=" && r.Header.Get("Authorization") == "" {
			return false
		}
		refuse(w, 403, "AuthorizationFailure", "no")
		return true
	}
	all, err := mux.Of([]source.Scheme{{Name: "az", Open: func(source.Access) (source.Source, error) { return open(t, access), nil }}},
		[]source.Place{{Names: []string{"az://photos/d?" + sig}}})
	stagetest.Must(t, err)
	for it, err := range all.List(t.Context(), "az://photos/d") {
		if err != nil || it.Name != "az://photos/d/x" {
			t.Fatalf("%+v, %v", it, err)
		}
	}
	if b, err := source.ReadAll(t.Context(), all, "az://photos/d/x", 10); err != nil || string(b) != "data" {
		t.Errorf("%q, %v", b, err)
	}
	head := make([]byte, 3)
	if n, err := all.Head(t.Context(), "az://photos/d/x", head); err != nil || string(head[:n]) != "dat" {
		t.Errorf("it begins with %q, %v", head[:n], err)
	}
	for it, err := range all.Begin(t.Context(), "az://photos/d/x") {
		if err != nil || it.Name != "az://photos/d/x" {
			t.Errorf("%+v, %v", it, err)
		}
	}
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		refuse(w, 403, "AuthorizationFailure", "no")
		return true
	}
	_, err = all.Stat(t.Context(), "az://photos/d/x")
	if e := errs.From(err); e.Code != errs.Denied || !strings.Contains(e.Hint, "signature of the URL") || strings.Contains(err.Error()+e.Hint+e.Where.File, "HUSH") {
		t.Errorf("%v (%s)", err, e.Hint)
	}
}
