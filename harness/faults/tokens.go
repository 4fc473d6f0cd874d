package faults

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stagetest"
)

// authority gives tokens, as Google's and Microsoft's servers do: another one each time.
type authority struct {
	secret string // that the client has to show
	token  func(number int64) string
	given  atomic.Int64
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		at := "https://" + r.Host + "/tenant"
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": at + "/v2.0", "authorization_endpoint": at + "/oauth2/v2.0/authorize", "token_endpoint": at + "/oauth2/v2.0/token"})
		return
	}
	if r.FormValue("client_secret") != a.secret && r.FormValue("refresh_token") != a.secret {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error": "invalid_client", "error_description": "Who is this?"}`))
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": a.token(a.given.Add(1)), "expires_in": 3600, "token_type": "Bearer"})
}

// serve starts an authority; root is its certificate.
func (a *authority) serve(t *testing.T) (url string, root []byte) {
	t.Helper()
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// google has a user's file of credentials lead to tokens, which the bucket does not look
// at: refusing them is up to the proxy.
func (l *Lab) google(t *testing.T) (root []byte) {
	t.Helper()
	token := planted("google-token")
	a := &authority{secret: planted("refresh"), token: func(n int64) string { return fmt.Sprint(token, "-", n) }}
	l.Secrets["Google's token"], l.Secrets["refresh token"] = token, a.secret
	url, root := a.serve(t)
	file, err := json.Marshal(map[string]string{
		"type": "authorized_user", "client_id": "client", "client_secret": a.secret, "refresh_token": a.secret, "token_uri": url,
	})
	stagetest.Must(t, err)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", stagetest.Put(t, filepath.Join(t.TempDir(), "user.json"), file))
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	return root
}

// entra has an application's secret lead to tokens, which the container accepts while they
// are of its kind and of now.
func (l *Lab) entra(t *testing.T) (root []byte) {
	t.Helper()
	part := func(v map[string]any) string {
		b, err := json.Marshal(v)
		stagetest.Must(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	head := part(map[string]any{"alg": "none", "typ": "JWT", "kid": planted("entra")})
	a := &authority{secret: planted("client-secret"), token: func(n int64) string {
		now := time.Now().Unix()
		return head + "." + part(map[string]any{
			"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
			"iat": now, "nbf": now - 60, "exp": now + 3600, "jti": fmt.Sprint(n),
		}) + "."
	}}
	l.Secrets["token of Entra"], l.Secrets["client secret"] = head, a.secret
	url, root := a.serve(t)
	for name, value := range map[string]string{
		"AZURE_AUTHORITY_HOST": url + "/", "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client",
		"AZURE_CLIENT_SECRET": a.secret, "AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential",
	} {
		t.Setenv(name, value)
	}
	return root
}
