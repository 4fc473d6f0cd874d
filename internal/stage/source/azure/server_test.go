package azure_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// sas is an account's signature for reading and listing, made as its documentation says.
func sas(until time.Time) string {
	expiry := until.UTC().Format(time.RFC3339)
	secret, _ := base64.StdEncoding.DecodeString(key)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join([]string{account, "rl", "b", "sco", "", expiry, "", "", "2021-12-02", "", ""}, "\n")))
	return url.Values{"sv": {"2021-12-02"}, "ss": {"b"}, "srt": {"sco"}, "sp": {"rl"}, "se": {expiry}, "sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))}}.Encode()
}

// The real emulator keeps the contract, and has every format.
func TestAzurite(t *testing.T) {
	nobody(t)
	server := servers.Azure(t, servers.AzureOptions{})
	server.Use(t)
	patient := source.Access{Deadline: time.Minute}
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		put := func(name string, data []byte) { server.Put("suite/"+name, data) }
		for name, data := range objects {
			put(name, data)
		}
		return open(t, patient), "az://data/suite/", put
	})
	t.Run("names", func(t *testing.T) {
		src := open(t, patient)
		names := []string{"n/a b+c&d=e?f#g%2Fh.tar", "n/it's (1)*!@$,;~", "n/é日本"}
		for _, name := range names {
			server.Put(name, []byte(name))
		}
		listed := list(t, src, "az://data/n", false)
		for i, name := range listed {
			if listed[i] = strings.TrimPrefix(name, "az://data/"); !slices.Contains(names, listed[i]) {
				t.Errorf("%s is listed", name)
			}
			if b, err := readAll(t, src, name); err != nil || string(b) != listed[i] {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		if len(listed) != len(names) {
			t.Errorf("listed %q", listed)
		}
	})
	t.Run("folders", func(t *testing.T) {
		put := func(name, data string, headers ...string) {
			resp, body := server.Do(http.MethodPut, server.Path(name), []byte(data), append([]string{"x-ms-blob-type", "BlockBlob"}, headers...)...)
			if resp.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %s", resp.Status, body)
			}
		}
		put("f", "", "x-ms-meta-hdi_isfolder", "true")
		put("f/g", "", "x-ms-meta-hdi_isfolder", "true")
		put("f/x", "x")
		put("f.tar", "bytes", "x-ms-blob-content-encoding", "gzip")
		src := open(t, patient)
		if got := list(t, src, "az://data/f", true); !slices.Equal(got, []string{"az://data/f/x"}) {
			t.Errorf("walked %q", got)
		}
		if st, err := src.Stat(t.Context(), "az://data/f"); err != nil || !st.Dir {
			t.Errorf("%+v, %v", st, err)
		}
		if b, err := readAll(t, src, "az://data/f.tar"); err != nil || string(b) != "bytes" {
			t.Errorf("stored as encoded: %q, %v", b, err)
		}
	})
	t.Run("every format", func(t *testing.T) {
		formats.Read(t, formats.Store{Prefix: "az://data", Put: func(path string, data []byte) { server.Put(path[1:], data) }})
	})
	t.Run("credentials", func(t *testing.T) { credentials(t, server) })
}

// credentials reads a blob with everything that the emulator accepts, wherever it is given.
func credentials(t *testing.T, server *servers.Server) {
	server.Put("c/x", []byte("data"))
	at := server.URL + "/" + account
	good, old := sas(time.Now().Add(time.Hour)), sas(time.Now().Add(-time.Hour))
	for what, c := range map[string]struct {
		name, endpoint string
		env            [][2]string
		refused        bool
	}{
		"a signature in the URL":                 {name: "az://data/c/x?" + good, endpoint: at},
		"a signature of the environment":         {endpoint: at, env: [][2]string{{"AZURE_STORAGE_SAS_TOKEN", "?" + good}}},
		"a signature of a connection string":     {env: [][2]string{{"AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint=" + at + ";SharedAccessSignature=" + good}}},
		"a key, and an endpoint without account": {endpoint: server.URL, env: [][2]string{{"AZURE_STORAGE_ACCOUNT", account}, {"AZURE_STORAGE_KEY", key}}},
		"the account in the name":                {name: "az://data@" + account + ".dfs.core.windows.net/c/x", endpoint: server.URL, env: [][2]string{{"AZURE_STORAGE_ACCOUNT_KEY", key}}},
		"a signature that has expired":           {name: "az://data/c/x?" + old, endpoint: at, refused: true},
		"a signature that is wrong":              {name: "az://data/c/x?" + strings.Replace(good, "sig=", "sig=AA", 1), endpoint: at, refused: true},
		"another key":                            {endpoint: at, env: [][2]string{{"AZURE_STORAGE_KEY", base64.StdEncoding.EncodeToString([]byte("another"))}}, refused: true},
		"nothing":                                {endpoint: at, refused: true},
	} {
		t.Run(what, func(t *testing.T) {
			nobody(t)
			for _, e := range c.env {
				t.Setenv(e[0], e[1])
			}
			if c.name == "" {
				c.name = "az://data/c/x"
			}
			b, err := readAll(t, open(t, source.Access{Storage: source.Storage{EndpointURL: c.endpoint}, Deadline: time.Minute}), c.name)
			e := errs.From(err)
			switch {
			case c.refused && (e.Code != errs.Denied || strings.Contains(err.Error()+e.Hint+e.Where.File, "sig=") || e.Hint == ""):
				t.Errorf("%v (%s)", err, e.Hint)
			case !c.refused && (err != nil || string(b) != "data"):
				t.Errorf("%q, %v (%s)", b, err, e.Hint)
			}
		})
	}
}

// A token is accepted where TLS keeps it.
func TestAzuriteWithTokens(t *testing.T) {
	nobody(t)
	server := servers.Azure(t, servers.AzureOptions{OAuth: true, Cert: servers.CA(t).Issue("127.0.0.1")})
	server.Put("x", []byte("data"))
	part := func(v map[string]any) string {
		b, err := json.Marshal(v)
		stagetest.Must(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	now := time.Now().Unix()
	t.Setenv("MY_TOKEN", part(map[string]any{"alg": "none", "typ": "JWT"})+"."+
		part(map[string]any{"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/", "iat": now, "nbf": now - 60, "exp": now + 600})+".")
	t.Setenv("AWS_CA_BUNDLE", server.Env["SSL_CERT_FILE"])
	access := source.Access{Storage: source.Storage{EndpointURL: server.URL + "/" + account, TokenEnv: "MY_TOKEN"}, Deadline: time.Minute}
	if b, err := readAll(t, open(t, access), "az://data/x"); err != nil || string(b) != "data" {
		t.Errorf("%q, %v (%s)", b, err, errs.From(err).Hint)
	}
	t.Setenv("MY_TOKEN", "no token")
	if _, err := readAll(t, open(t, access), "az://data/x"); errs.CodeOf(err) != errs.Denied {
		t.Errorf("a token that is none: %v", err)
	}
}
