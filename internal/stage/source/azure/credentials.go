package azure

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// scope is all that tokens are good for: storage, in every cloud.
const scope = "https://storage.azure.com/.default"

// credentials are who reads. A signature of the URL comes first, then what the user's
// settings say, the key or the signature of the account, and tokens; without any of these
// requests are anonymous, which public containers answer.
type credentials struct {
	store  *store
	bearer remote.Bearer

	mu     sync.Mutex
	fixed  bool   // the token is not renewed
	from   string // where tokens come from; "": nobody gives one
	looked string // what each place said that gives none
}

// used is the credentials that a request carries: one of these, or none.
type used struct {
	token    string
	key, sas bool
}

func newCredentials(s *store) *credentials {
	c := &credentials{store: s}
	c.bearer.Get = c.get
	return c
}

// mine says whether the environment's credentials belong to that account.
func (e environment) mine(account string) bool { return e.any || e.owner == account }

// unowned is the error of secrets of which nobody knows for which account they are.
func (e environment) unowned(name string) error {
	what := e.keyFrom
	if e.key == "" {
		what = e.sasFrom
	}
	return errs.New(errs.Denied, "%s does not name its account, and the dataset names %d accounts", what, len(e.wrote)).At(errs.Where{File: strings.Clone(name)}).
		Try("set AZURE_STORAGE_ACCOUNT to its account")
}

// put puts credentials on a request.
func (c *credentials) put(ctx context.Context, req *http.Request, r request) (used, error) {
	a, env := c.store.access.Storage, c.store.env
	if sas, _ := ctx.Value(sasKey{}).(string); sas != "" {
		return withSAS(req, sas), nil
	}
	switch {
	case a.Anonymous:
		return used{}, nil
	case a.TokenEnv != "":
	case env.owner == "" && !env.any && (env.key != "" || env.sas != ""):
		return used{}, env.unowned(r.name)
	case env.mine(r.account) && env.key != "":
		key, err := base64.StdEncoding.DecodeString(env.key)
		if err != nil {
			return used{}, errs.New(errs.Denied, "the key of the storage account in %s is not base64", env.keyFrom).At(errs.Where{File: strings.Clone(r.name)}).
				Try("copy it from the page \"Access keys\" of the storage account")
		}
		sign(req, r.account, key, c.store.net.Now().Add(time.Duration(c.store.ahead.Load())))
		return used{key: true}, nil
	case env.mine(r.account) && env.sas != "":
		return withSAS(req, strings.TrimPrefix(env.sas, "?")), nil
	}
	if !remote.Private(&r.base) {
		return used{}, nil
	}
	token, err := c.bearer.Token(ctx)
	var e *errs.Error
	if errors.As(err, &e) && e.Where.File == "" {
		at := *e
		return used{}, at.At(errs.Where{File: strings.Clone(r.name)})
	}
	if token != "" {
		req.Header["Authorization"] = []string{"Bearer " + token}
	}
	return used{token: token}, err
}

func withSAS(req *http.Request, sas string) used {
	if req.URL.RawQuery != "" {
		sas = "&" + sas
	}
	req.URL.RawQuery += sas
	return used{sas: true}
}

func (c *credentials) renewable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.fixed
}

func (c *credentials) found(from, looked string, fixed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from, c.looked, c.fixed = from, looked, fixed
}

// get is remote.Bearer's Get. The chain is made anew each time, because it caches tokens.
// Those of managed identities are in a cache of the process, past which claims lead: what
// the command line would refuse.
func (c *credentials) get(ctx context.Context, refused string) (string, time.Time, error) {
	if env := c.store.access.Storage.TokenEnv; env != "" {
		token := os.Getenv(env)
		if token == "" {
			return "", time.Time{}, errs.New(errs.Config, "dataset.storage.token_env names %s, which is not set", errs.Name(env)).
				Try("set it, for example %s=$(az account get-access-token --resource https://storage.azure.com --query accessToken -o tsv)", env)
		}
		c.found("the token of "+env+" (dataset.storage.token_env)", "", true)
		return token, time.Time{}, nil
	}
	w := &way{client: c.store.net.Client()}
	chain, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: policy.ClientOptions{Transport: w},
		// Who names an authority of their own means that one, and not what Microsoft knows.
		DisableInstanceDiscovery: os.Getenv("AZURE_AUTHORITY_HOST") != "",
	})
	if err != nil {
		return "", time.Time{}, errs.New(errs.Denied, "Azure's credentials cannot be used").Because(err).Try("%s", help)
	}
	t, err := chain.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err == nil && t.Token == refused {
		t, err = chain.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}, Claims: `{"access_token":{}}`})
	}
	var failed *azidentity.AuthenticationFailedError
	switch {
	case err == nil:
		c.found("those that azidentity found (environment, workload identity, managed identity or az login)", "", false)
		return t.Token, t.ExpiresOn, nil
	case ctx.Err() != nil:
		return "", time.Time{}, err
	case !errors.As(err, &failed): // there are none
		c.found("", brief(err.Error()), false)
		return "", time.Time{}, nil
	case w.failed != nil:
		return "", time.Time{}, remote.Failed(ctx, "", w.failed)
	}
	return "", time.Time{}, errs.New(errs.Denied, "Azure issued no token for the credentials").Because(errors.New(brief(failed.Error()))).Try("%s", help)
}

// way is how azidentity reaches the servers that give tokens; failed is why the last one
// was not reached.
type way struct {
	client *http.Client
	failed error
}

// Do is policy.Transporter's.
func (w *way) Do(req *http.Request) (*http.Response, error) {
	resp, err := w.client.Do(req)
	w.failed = err
	return resp, err
}

// brief is the text of an error of azidentity without headings, rules and links.
func brief(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "To troubleshoot")
		if line = strings.TrimRight(strings.TrimSpace(line), "."); strings.Trim(line, "-{}") != "" && !strings.HasSuffix(line, ":") && !strings.HasSuffix(line, "failed to acquire a token") {
			lines = append(lines, line)
		}
	}
	return remote.Shortened(strings.Join(lines, "; "), 1500)
}

const help = "run `az login`, or set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING; for public data, set dataset.storage.anonymous"

// hint says what may help if a request is denied: whose credentials were used, and why.
func (c *credentials) hint(r request, was used) string {
	env := c.store.env
	c.mu.Lock()
	from, looked := c.from, c.looked
	c.mu.Unlock()
	switch {
	case was.sas && env.sas != "":
		return "the request had the shared access signature of " + env.sasFrom + "; make one that allows reading and listing (sp=rl) and has not expired"
	case was.sas:
		return "the request had the shared access signature of the URL; make one that allows reading and listing (sp=rl) and has not expired"
	case was.key:
		return "the request was signed with the key of " + env.keyFrom + " for the account " + r.account + "; check that the key belongs to this account, and that the account allows keys"
	case was.token != "":
		return "the credentials are " + from + "; give them the role Storage Blob Data Reader on the container, or use others: " + help
	case c.store.access.Storage.Anonymous:
		return "the request had no credentials, because dataset.storage.anonymous is set; remove it if the data is not public"
	case !remote.Private(&r.base):
		return "the request had no credentials, because tokens are not sent over plain HTTP; write https:// in endpoint_url"
	}
	places := "dataset.storage.token_env, AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN (not set)"
	if env.owner != "" && !env.mine(r.account) {
		places = "dataset.storage.token_env (not set), the environment (its key and signature are of the account " + errs.Name(env.owner) + ")"
	}
	return "no credentials were found in: " + places + ", " + looked + "; " + help
}
