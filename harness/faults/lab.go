package faults

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/testdata/photos"
)

// Lab is the servers of a campaign, their data, and the secrets that outputs are searched
// for.
type Lab struct {
	Secrets map[string]string // texts that no output may contain, by their meaning

	t       testing.TB
	servers map[Store]*servers.Server // but those of the Hub
	local   string                    // a copy of the data
	hub     *repository               // nil: no run is on the Hub
	sas     string                    // the signature of Azure's URLs: a query

	good, expired, other *slownet.Certificate

	mu   sync.Mutex
	want map[string]string // digest of the undisturbed stream, by data
}

// copies is how often each photograph is in the data, and shardBytes the approximate size
// of a shard. They are large enough for faults in the middle of an epoch.
const (
	copies     = 5
	shardBytes = 400 << 10
	tokenEnv   = "STOKER_FAULTS_TOKEN" // names the variable of the web server's token
	many       = 1100                  // small objects, of which one page of a listing has 1,000
)

// NewLab starts the servers of these stores, and stores on each photographs as tar shards
// with and without the manifest of their packing, as TFRecords, as single objects, and a
// Parquet file.
func NewLab(t *testing.T, on ...Store) *Lab {
	t.Helper()
	l := &Lab{t: t, local: t.TempDir(), servers: map[Store]*servers.Server{}, want: map[string]string{}, Secrets: map[string]string{
		"session token": planted("session-token"),
		"signature":     planted("signature"),
		"bearer token":  planted("bearer"),
		"password":      planted("password"),
	}}
	t.Setenv(tokenEnv, l.Secrets["bearer token"])
	l.make()
	var roots [][]byte // that clients must trust
	for _, store := range on {
		roots = append(roots, l.start(t, store)...)
	}
	l.certificates(t, roots)
	for _, server := range l.servers {
		if server.Dir == l.local {
			continue
		}
		stagetest.Must(t, fs.WalkDir(os.DirFS(l.local), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasPrefix(name, "many/") {
				return err
			}
			server.Put(name, l.Bytes(name))
			return nil
		}))
	}
	if s3 := l.servers[S3]; s3 != nil { // as files that were not put: one by one takes too long
		stagetest.Must(t, os.CopyFS(filepath.Join(s3.Dir, "many"), os.DirFS(filepath.Join(l.local, "many"))))
	}
	return l
}

// planted is a secret, which is in nothing by chance.
func planted(what string) string { return fmt.Sprintf("planted0%s0%d", what, os.Getpid()) }

// make writes the data.
func (l *Lab) make() {
	all, err := fs.Glob(photos.Small, "*.jpg")
	stagetest.Must(l.t, err)
	for i := range copies {
		for k, name := range all {
			data, err := photos.Small.ReadFile(name)
			stagetest.Must(l.t, err)
			l.save(fmt.Sprintf("objects/%c/%02d-%s", 'a'+k%2, i, name), data)
		}
	}
	for i := range many {
		l.save(fmt.Sprintf("many/%c/%04d.ppm", "ab"[i/(many-10)], i), fmt.Appendf(nil, "P6 2 1 255\n%06d", i))
	}
	for _, output := range []string{pack.OutputTar, pack.OutputTFRecord} {
		dst := filepath.Join(l.local, map[string]string{pack.OutputTar: "packed", pack.OutputTFRecord: "tfrecord"}[output])
		_, err := pack.Run(context.Background(), pack.Config{
			Dataset: spec.Dataset{Path: spec.Paths{filepath.Join(l.local, "objects")}}, Dst: dst,
			Options: pack.Options{Output: output, ShardSize: shardBytes},
		})
		stagetest.Must(l.t, err)
	}
	shards, err := filepath.Glob(filepath.Join(l.local, "packed", "*.tar"))
	stagetest.Must(l.t, err)
	for _, shard := range shards {
		data, err := os.ReadFile(shard)
		stagetest.Must(l.t, err)
		l.save("tar/"+filepath.Base(shard), data)
	}
	top, err := os.Getwd()
	stagetest.Must(l.t, err)
	l.save("parquet/pictures.parquet", stagetest.Unzipped(l.t, filepath.Join(top, "../../testdata/parquet/pictures-plain.parquet.gz")))
}

func (l *Lab) save(name string, data []byte) {
	path := filepath.Join(l.local, filepath.FromSlash(name))
	stagetest.Must(l.t, os.MkdirAll(filepath.Dir(path), 0o755))
	stagetest.Must(l.t, os.WriteFile(path, data, 0o644))
}

// Bytes is an object as it is stored.
func (l *Lab) Bytes(name string) []byte {
	data, err := os.ReadFile(filepath.Join(l.local, filepath.FromSlash(name)))
	stagetest.Must(l.t, err)
	return data
}

// profiles writes keys that a command prints: those of "stale" come with a session token,
// which has expired.
func (l *Lab) profiles(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	for name, token := range map[string]string{"renewed": "", "stale": fmt.Sprintf(`, "SessionToken": "%s"`, l.Secrets["session token"])} {
		command := filepath.Join(dir, name)
		stagetest.Must(t, os.WriteFile(command, fmt.Appendf(nil, "#!/bin/sh\necho '{\"Version\": 1, \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"%s\"%s}'\n",
			l.servers[S3].Env["AWS_ACCESS_KEY_ID"], l.Secrets["secret key"], token), 0o700))
		fmt.Fprintf(&b, "[profile %s]\ncredential_process = %s\n", name, command)
	}
	config := filepath.Join(dir, "config")
	stagetest.Must(t, os.WriteFile(config, []byte(b.String()), 0o600))
	t.Setenv("AWS_CONFIG_FILE", config)
}

// certificates makes the certificates of proxies, and makes clients trust them all, and the
// others: a faulty one has a wrong time or a wrong host.
func (l *Lab) certificates(t *testing.T, others [][]byte) {
	t.Helper()
	var roots bytes.Buffer
	for _, pem := range others {
		roots.Write(pem)
	}
	issue := func(until time.Time, host string) *slownet.Certificate {
		c, err := slownet.Certify(until, host)
		stagetest.Must(t, err)
		roots.Write(c.Cert)
		return c
	}
	l.good = issue(time.Now().AddDate(0, 0, 1), "127.0.0.1")
	l.expired = issue(time.Now().Add(-time.Minute), "127.0.0.1")
	l.other = issue(time.Now().AddDate(0, 0, 1), "other.example")
	file := filepath.Join(t.TempDir(), "roots.pem")
	stagetest.Must(t, os.WriteFile(file, roots.Bytes(), 0o600))
	t.Setenv("SSL_CERT_FILE", file)
}

// undisturbed is the digest of the stream of data that is read from this machine's disk.
func (l *Lab) undisturbed(data string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.want[data] == "" {
		r := &Run{Lab: l, Fault: Fault{Data: data}, data: data, Deadline: time.Minute}
		digest, err := r.stream("")
		if err != nil {
			return "", err
		}
		l.want[data] = digest
	}
	return l.want[data], nil
}
