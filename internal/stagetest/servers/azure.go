package servers

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
)

// The account that Azurite has, and its key, which everybody knows.
const (
	AzureAccount = "devstoreaccount1"
	AzureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// AzureOptions are options of Azure; their zero value is a server over plain HTTP.
type AzureOptions struct {
	Cert    *Cert    // serves TLS with it
	OAuth   bool     // accepts tokens, too: any that is not expired, for the audience of storage; needs Cert
	Account string   // its only account, with AzureKey; "": AzureAccount
	Args    []string // more arguments of azurite-blob
}

type azure struct{ azureKey }

// Azure starts Azurite's blob server. The account is the first part of each path.
func Azure(t testing.TB, o AzureOptions) *Server {
	t.Helper()
	program := installed(t, azurite)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("azurite is installed, and node is not: %v", err)
	}
	dir, account := t.TempDir(), cmp.Or(o.Account, AzureAccount)
	p, port := start(t, func(port int) *exec.Cmd {
		cmd := exec.Command(node, program, "--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(port), "--location", dir,
			"--skipApiVersionCheck", "--disableTelemetry", "--silent")
		if o.Cert != nil {
			cmd.Args = append(cmd.Args, "--cert", o.Cert.File, "--key", o.Cert.Key)
		}
		if o.OAuth {
			cmd.Args = append(cmd.Args, "--oauth", "basic")
		}
		cmd.Args = append(cmd.Args, o.Args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+account+":"+AzureKey)
		return cmd
	})
	s := newServer(t, p, url(o.Cert, port), o.Cert, azure{azureKey{account, AzureKey}})
	endpoint := s.URL + "/" + account
	s.Env["AZURE_STORAGE_ACCOUNT"] = account
	s.Env["AZURE_STORAGE_KEY"] = AzureKey
	s.Env["AZURE_STORAGE_CONNECTION_STRING"] = fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;",
		s.URL[:len(s.URL)-len("://127.0.0.1:")-len(fmt.Sprint(port))], account, AzureKey, endpoint)
	s.Env["AZURE_CONFIG_DIR"] = os.DevNull // nothing of the user's own
	return s.In(Bucket)
}

func (a azure) makeBucket(s *Server) {
	s.t.Helper()
	s.must(http.MethodPut, "/"+a.account+"/"+s.Bucket+"?restype=container", nil, http.StatusConflict)
}

func (a azure) path(s *Server, name string) string {
	return "/" + a.account + "/" + s.Bucket + "/" + escaped(name)
}

func (azure) put(s *Server, name string, data []byte) {
	s.t.Helper()
	s.must(http.MethodPut, s.Path(name), data, 0, "x-ms-blob-type", "BlockBlob")
}

func (azure) remove(s *Server, name string) {
	s.t.Helper()
	s.must(http.MethodDelete, s.Path(name), nil, 0)
}
