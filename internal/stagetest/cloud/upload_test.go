package cloud

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"golang.org/x/oauth2/google"
)

// writer writes to a bucket by plain requests. Credentials are those of the environment, as
// for reading; no command of a store has to be installed.
type writer struct {
	bucket string
	// put and remove make the request for an object, without credentials.
	put, remove func(key string, data []byte) (*http.Request, error)
	authorize   func(req *http.Request, data []byte) error
}

// newWriter is that of the bucket of a URL.
func newWriter(ctx context.Context, t *testing.T, scheme, bucket string) writer {
	t.Helper()
	var w writer
	var err error
	switch scheme {
	case "s3":
		w, err = toS3(ctx, bucket)
	case "gs", "gcs":
		w, err = toGCS(ctx, bucket)
	case "az", "azure":
		w, err = toAzure(ctx, bucket)
	default:
		t.Fatalf("%s://: the tests write to s3://bucket, gs://bucket and az://container", scheme)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.bucket = bucket
	return w
}

// do makes a request, three times if the store is busy.
func (w writer) do(make func(key string, data []byte) (*http.Request, error), key string, data []byte) error {
	for try := 1; ; try++ {
		req, err := make(key, data)
		if err == nil {
			err = w.authorize(req, data)
		}
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode < 300:
			return nil
		case try == 3 || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500:
			return fmt.Errorf("%s %s in %s: %s: %s", req.Method, key, w.bucket, resp.Status, said)
		}
		time.Sleep(time.Duration(try) * time.Second)
	}
}

// requests are PUT and DELETE of what at says is an object's address.
func requests(ctx context.Context, at func(key string) string, headers ...string) (put, remove func(string, []byte) (*http.Request, error)) {
	of := func(method string) func(string, []byte) (*http.Request, error) {
		return func(key string, data []byte) (*http.Request, error) {
			req, err := http.NewRequestWithContext(ctx, method, at(key), bytes.NewReader(data))
			for i := 0; err == nil && i < len(headers); i += 2 {
				req.Header.Set(headers[i], headers[i+1])
			}
			return req, err
		}
	}
	return of(http.MethodPut), of(http.MethodDelete)
}

func escaped(key string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(key))
}

func toS3(ctx context.Context, bucket string) (w writer, err error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return w, err
	}
	region := cmp.Or(cfg.Region, "us-east-1")
	base := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), aws.ToString(cfg.BaseEndpoint))
	if base == "" {
		base = "https://s3." + region + ".amazonaws.com"
	}
	w.put, w.remove = requests(ctx, func(key string) string { return base + "/" + bucket + "/" + escaped(key) })
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	w.authorize = func(req *http.Request, data []byte) error {
		creds, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		payload := hex.EncodeToString(sum[:])
		req.Header.Set("X-Amz-Content-Sha256", payload)
		return signer.SignHTTP(ctx, creds, req, payload, "s3", region, time.Now())
	}
	return w, nil
}

func toGCS(ctx context.Context, bucket string) (w writer, err error) {
	base, emulator := "https://storage.googleapis.com", os.Getenv("STORAGE_EMULATOR_HOST")
	if emulator != "" {
		if base = emulator; !strings.Contains(base, "://") {
			base = "http://" + base
		}
	}
	w.put = func(key string, data []byte) (*http.Request, error) {
		at := base + "/upload/storage/v1/b/" + bucket + "/o?uploadType=media&name=" + url.QueryEscape(key)
		return http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(data))
	}
	w.remove = func(key string, _ []byte) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodDelete, base+"/storage/v1/b/"+bucket+"/o/"+url.PathEscape(key), nil)
	}
	w.authorize = func(*http.Request, []byte) error { return nil }
	if emulator != "" {
		return w, nil
	}
	creds, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/devstorage.read_write")
	if err != nil {
		return w, err
	}
	w.authorize = func(req *http.Request, _ []byte) error {
		token, err := creds.TokenSource.Token()
		if err == nil {
			token.SetAuthHeader(req)
		}
		return err
	}
	return w, nil
}

// toAzure writes to the account that the environment names, by its key or, without one, by
// a token. A shared access signature for reading would not do.
func toAzure(ctx context.Context, container string) (w writer, err error) {
	of := map[string]string{}
	for part := range strings.SplitSeq(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), ";") {
		name, value, _ := strings.Cut(part, "=")
		of[name] = value
	}
	account := cmp.Or(of["AccountName"], os.Getenv("AZURE_STORAGE_ACCOUNT"), os.Getenv("AZURE_STORAGE_ACCOUNT_NAME"))
	if account == "" {
		return w, fmt.Errorf("set AZURE_STORAGE_ACCOUNT: the storage account is not known")
	}
	base := strings.TrimSuffix(cmp.Or(of["BlobEndpoint"], "https://"+account+".blob.core.windows.net"), "/")
	query := ""
	if secret := cmp.Or(of["AccountKey"], os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_ACCOUNT_KEY")); secret != "" {
		if query, err = signature(account, secret); err != nil {
			return w, err
		}
	}
	at := func(key string) string { return base + "/" + container + "/" + escaped(key) + query }
	w.put, w.remove = requests(ctx, at, "x-ms-version", "2021-12-02", "x-ms-blob-type", "BlockBlob")
	w.authorize = func(*http.Request, []byte) error { return nil }
	if query != "" {
		return w, nil
	}
	chain, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return w, err
	}
	w.authorize = func(req *http.Request, _ []byte) error {
		token, err := chain.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+token.Token)
		}
		return err
	}
	return w, nil
}

// signature is a query by which objects may be written for two hours, made of the
// account's key as Azure's documentation says.
func signature(account, secret string) (string, error) {
	key, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return "", fmt.Errorf("the account's key is not base64: %w", err)
	}
	end := time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join([]string{account, "rwdc", "b", "o", "", end, "", "", "2021-12-02", "", ""}, "\n")))
	return "?" + url.Values{
		"sv": {"2021-12-02"}, "ss": {"b"}, "srt": {"o"}, "sp": {"rwdc"}, "se": {end},
		"sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}.Encode(), nil
}
