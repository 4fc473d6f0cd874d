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

	t     testing.TB
	s3    *servers.Server
	web   *servers.Server
	local string // a copy of the data

	good, expired, other *slownet.Certificate

	mu   sync.Mutex
	want map[string]string // digest of the undisturbed stream, by store and data
}

// copies is how often each photograph is in the data, and shardBytes the approximate size
// of a shard. They are large enough for faults in the middle of an epoch.
const (
	copies     = 5
	shardBytes = 400 << 10
	tokenEnv   = "STOKER_FAULTS_TOKEN" // names the variable of the web server's token
	many       = 1100                  // small objects, of which one page of a listing has 1,000
)

// NewLab starts the servers, and stores on each photographs as tar shards with and without
// the manifest of their packing, as TFRecords, as single objects, and a Parquet file.
func NewLab(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{t: t, local: t.TempDir(), want: map[string]string{}, Secrets: map[string]string{
		"session token": "planted-session-token-" + fmt.Sprint(os.Getpid()),
		"signature":     "planted0signature0" + fmt.Sprint(os.Getpid()),
		"bearer token":  "planted0bearer0" + fmt.Sprint(os.Getpid()),
		"password":      "planted0password0" + fmt.Sprint(os.Getpid()),
	}}
	t.Setenv(tokenEnv, l.Secrets["bearer token"])
	l.make()
	l.s3 = servers.S3(t, servers.S3Options{})
	l.web = servers.HTTP(t, l.local, servers.HTTPOptions{Index: "json"})
	l.s3.Use(t)
	// A store whose checksums are asked for, as AWS's are.
	t.Setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported")
	l.Secrets["secret key"] = l.s3.Env["AWS_SECRET_ACCESS_KEY"]
	l.profiles(t)
	l.certificates(t)
	stagetest.Must(t, fs.WalkDir(os.DirFS(l.local), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(name, "many/") {
			return err
		}
		l.s3.Put(name, l.Bytes(name))
		return nil
	}))
	stagetest.Must(t, os.CopyFS(filepath.Join(l.s3.Dir, "many"), os.DirFS(filepath.Join(l.local, "many"))))
	return l
}

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
			l.s3.Env["AWS_ACCESS_KEY_ID"], l.Secrets["secret key"], token), 0o700))
		fmt.Fprintf(&b, "[profile %s]\ncredential_process = %s\n", name, command)
	}
	config := filepath.Join(dir, "config")
	stagetest.Must(t, os.WriteFile(config, []byte(b.String()), 0o600))
	t.Setenv("AWS_CONFIG_FILE", config)
}

// certificates makes the certificates of proxies, and makes clients trust them all: a faulty
// one has a wrong time or a wrong host.
func (l *Lab) certificates(t *testing.T) {
	t.Helper()
	var roots bytes.Buffer
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

// server is that of a store.
func (l *Lab) server(on Store) *servers.Server {
	if on == S3 {
		return l.s3
	}
	return l.web
}

// paths are those of data on a store that is reached at url.
func (l *Lab) paths(on Store, url, data string) spec.Paths {
	if on == S3 {
		return spec.Paths{"s3://" + servers.Bucket + "/" + data}
	}
	if data != "tar" {
		scheme, host, _ := strings.Cut(url, "://")
		return spec.Paths{scheme + "://user:" + l.Secrets["password"] + "@" + host + "/" + data}
	}
	shards, err := filepath.Glob(filepath.Join(l.local, data, "*.tar"))
	stagetest.Must(l.t, err)
	var all spec.Paths
	for _, shard := range shards {
		all = append(all, url+"/"+data+"/"+filepath.Base(shard)+"?X-Amz-Signature="+l.Secrets["signature"])
	}
	return all
}

// undisturbed is the digest of the stream of data that is read without a proxy.
func (l *Lab) undisturbed(on Store, data string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := string(on) + " " + data
	if l.want[key] == "" {
		r := &Run{Lab: l, Fault: Fault{On: on, Data: data}, data: data, Deadline: time.Minute}
		digest, err := r.stream(l.server(on).URL)
		if err != nil {
			return "", err
		}
		l.want[key] = digest
	}
	return l.want[key], nil
}
