package spec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// What a Spec says about a store and its link arrives in what sources are made with.
func TestAccess(t *testing.T) {
	s, err := Read([]byte(`{"dataset": {"path": "s3://b/k", "storage": {"endpoint_url": "http://127.0.0.1:1", "region": "r", "profile": "p",
		"requester_pays": true, "token_env": "T", "fresh": "never"}, "origins": ["s3://c/d/"]},
		"fetch": {"ahead": "1GiB", "connections": 9, "bandwidth": "10MB/s", "hedge": false, "deadline": "90s"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := source.Access{
		Storage:     source.Storage{EndpointURL: "http://127.0.0.1:1", Region: "r", Profile: "p", RequesterPays: true, TokenEnv: "T", Fresh: "never"},
		Connections: 9, Bandwidth: 10e6, NoHedge: true, Deadline: 90 * time.Second,
	}
	if got := s.Access(s.Dataset); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
	if s.Fetch.Ahead != 1<<30 || s.Dataset.Origins[0] != "s3://c/d/" {
		t.Errorf("%+v %+v", s.Fetch, s.Dataset.Origins)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Read(text); err != nil || again.Access(again.Dataset) != want || again.Fetch.Ahead != s.Fetch.Ahead {
		t.Errorf("%s is %+v, %v", text, again, err)
	}
	s, err = Read([]byte(`{"fetch": {"ahead": "auto", "connections": "auto", "bandwidth": "none", "hedge": true, "deadline": 2.5}}`))
	if want := (source.Access{Deadline: 2500 * time.Millisecond}); err != nil || s.Access(s.Dataset) != want {
		t.Errorf("%+v, %v", s, err)
	}
}

// Wrong values of these keys are named, with what they can be.
func TestAccessTeaches(t *testing.T) {
	for text, want := range map[string]string{
		`{"fetch": {"deadline": "soon"}}`:           `fetch.deadline is "soon": it must be a number of seconds above 0, such as 90, or text such as "10m"; at most "24h"`,
		`{"dataset": {"storage": {"fresh": true}}}`: `dataset.storage.fresh has the wrong type: it must be always (the index is compared with a listing at every opening) or never`,
		`{"fetch": {"deadline": 0}}`:                `fetch.deadline is 0: it must be`,
		`{"fetch": {"deadline": "300h"}}`:           `fetch.deadline is "300h": it must be`,
		`{"fetch": {"deadline": 1e99}}`:             `fetch.deadline is 1e99: it must be`,
		`{"fetch": {"connections": 0}}`:             `fetch.connections is 0: it must be "auto", or a number of connections from 1 to 4096`,
		`{"fetch": {"connections": "all"}}`:         `fetch.connections is "all": it must be`,
		`{"fetch": {"bandwidth": "auto"}}`:          `fetch.bandwidth is "auto": it must be "none", bytes per second`,
		`{"fetch": {"bandwidth": 0}}`:               `fetch.bandwidth is 0: it must be`,
		`{"fetch": {"hedge": "no"}}`:                `fetch.hedge is "no": it must be true or false`,
		`{"fetch": {"ahead": "far"}}`:               `fetch.ahead is "far": it must be "auto", a number of bytes`,
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n %v\nwant\n %s", text, err, want)
		}
	}
	formats := Formats{Names: []string{""}}
	for _, c := range []struct {
		storage source.Storage
		origins []string
		want    string
	}{
		{source.Storage{Fresh: "sometimes"}, nil, `dataset.storage.fresh is "sometimes": it can be always, never`},
		{source.Storage{TokenEnv: "hf_hush"}, nil, "token_env is not the name of an environment variable"},
		{source.Storage{TokenEnv: "AKIAIOSFODNN7EXAMPLE"}, nil, "token_env is not the name of an environment variable"},
		{source.Storage{TokenEnv: "F86D081884C7D659ABC0C55AD0"}, nil, "give the name, not the token"},
		{source.Storage{TokenEnv: "T", Anonymous: true}, nil, "anonymous and dataset.storage.token_env exclude each other: keep one"},
		{source.Storage{Profile: "T", Anonymous: true}, nil, "anonymous and dataset.storage.profile exclude each other: keep one"},
		{source.Storage{EndpointURL: "127.0.0.1:9000"}, nil, "endpoint_url is not the URL of a server"},
		{source.Storage{EndpointURL: "https://u:hush@h"}, nil, "endpoint_url has a user name or a password"},
		{source.Storage{EndpointURL: "https://h/?sig=hush"}, nil, "endpoint_url has a query"},
		{source.Storage{}, []string{""}, "an empty prefix"},
		{source.Storage{}, []string{"s3://"}, "would allow every bucket"},
		{source.Storage{}, []string{"s3://b/*"}, "prefixes, without"},
	} {
		s := Spec{Dataset: Dataset{Path: Paths{"x"}, Storage: c.storage, Origins: c.origins}}.Defaults()
		err := s.Check(formats).Err()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v\nwant %s", c, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "AKIA")) {
			t.Errorf("%v repeats a secret", err)
		}
	}
}

// A secret in a Spec is refused, whatever its key is called. Its value is not repeated.
func TestSecretsAreRefused(t *testing.T) {
	for key, set := range map[string]string{
		"key": "AWS_ACCESS_KEY_ID", "aws_access_key_id": "AWS_ACCESS_KEY_ID", "accessKey": "AWS_ACCESS_KEY_ID",
		"secret": "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY", "aws-secret-access-key": "AWS_SECRET_ACCESS_KEY",
		"session_token": "AWS_SESSION_TOKEN", "token": "token_env", "hf_token": "HF_TOKEN", "bearerToken": "token_env",
		"account_key": "AZURE_STORAGE_KEY", "sas_token": "AZURE_STORAGE_SAS_TOKEN", "sas": "AZURE_STORAGE_SAS_TOKEN",
		"Connection-String": "AZURE_STORAGE_CONNECTION_STRING", "credential": "GOOGLE_APPLICATION_CREDENTIALS",
		"client_secret": "AZURE_CLIENT_SECRET", "password": ".netrc", "username": ".netrc",
	} {
		for _, text := range []string{
			`{"dataset": {"path": "x", "storage": {"` + key + `": "hush"}}}`,
			`{"dataset": {"path": "x", "storage": {"` + key + `": "hush"}, "label": 7}}`,
			`{"dataset": [{"path": "x", "storage": {"` + key + `": ["hush"]}}]}`,
		} {
			_, err := Read([]byte(text))
			e := errs.From(err)
			if err == nil || e.Code != errs.Config || !strings.Contains(e.What, key) || !strings.Contains(e.Hint, set) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v (%v)", text, err, e)
			}
		}
	}
	for _, text := range []string{`{"dataset": {"storage": "hush"}}`, `{"dataset": {"storage": {"profile": ["hush"]}}}`, `{"dataset": [{"storage": {"region": {"x": "hush"}}}]}`} {
		if _, err := Read([]byte(text)); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "storage") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The variables are those of the store in use.
func TestSecretsOfTheStoreInUse(t *testing.T) {
	for _, c := range []struct{ path, key, want string }{
		{`"s3://b/x"`, "token", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for temporary keys, AWS_SESSION_TOKEN too) where"},
		{`["a", "s3://b/x"]`, "account_key", "set AWS_ACCESS_KEY_ID and"},
		{`"s3://b/x"`, "secret", "set AWS_SECRET_ACCESS_KEY where"},
		{`"gs://b/x"`, "token", "set GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or a variable of your own"},
		{`"az://c/x"`, "key", "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or a variable"},
		{`"abfss://c@a.dfs.core.windows.net/x"`, "account_key", "set AZURE_STORAGE_KEY where"},
		{`"hf://datasets/a/b"`, "token", "set HF_TOKEN, or a variable of your own, named by token_env where"},
		{`"@https://h/list"`, "password", "write it into .netrc (or the file that NETRC names), or into a variable of your own, named by token_env, where"},
		{`["s3://b/x", "gs://b/x"]`, "token", "set HF_TOKEN, AWS_SESSION_TOKEN,"},
	} {
		for _, label := range []string{"", `, "label": 7`} {
			text := `{"dataset": {"path": ` + c.path + `, "storage": {"` + c.key + `": "hush"}` + label + `}}`
			if _, err := Read([]byte(text)); !strings.Contains(errs.From(err).Hint, c.want) {
				t.Errorf("%s: %v\nwant %s", text, errs.From(err).Hint, c.want)
			}
		}
	}
}

// What is read from a Spec has no secrets in its names; Places has them, and so has what
// is passed on to another process. Nothing else, not even fmt, writes them.
func TestNamesAreHidden(t *testing.T) {
	const url = "https://u:HUSH@h/{a,b}.tar?sig=HUSH&v=2"
	text := `{"dataset": [{"path": "` + url + `", "origins": ["https://h/c?token=HUSH"], "root": "` + url + `"}, {"manifest": "` + url + `"}, {"columns": [{"name": "c", "path": "` + url + `"}]}, {"path": "/x"}]}`
	s, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	again := s
	again.Dataset = s.Dataset.Hidden()
	for _, s := range []Spec{s, again} {
		b, err := json.Marshal(s)
		if err != nil || strings.Contains(string(b)+fmt.Sprintf("%v %+v %#v", s, s, s), "HUSH") {
			t.Errorf("%s, %v, %+v", b, err, s)
		}
		places := s.Places()
		if len(places) != 4 || !slices.Contains(places[0].Names, url) || !slices.Contains(places[1].Names, url) || !slices.Contains(places[2].Names, url) || !slices.Equal(places[3].Names, []string{"/x"}) {
			t.Errorf("%v", places)
		}
		s.Dataset = s.Dataset.AsGiven()
		if b, err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		if back, err := Read(b); err != nil || !slices.Contains(back.Places()[2].Names, url) || back.Dataset.Mixed[0].Origins[0] != "https://h/c" {
			t.Errorf("%s: %+v, %v", b, back, err)
		}
	}
	if d := (Dataset{Manifest: "https://h/t"}).ReachedAs(s.Dataset.Mixed[0]); !slices.Contains((Spec{Dataset: d}).Places()[0].Names, url) {
		t.Errorf("%+v", d)
	}
}

// Names with secrets come back in time that grows with their number, and not with its square.
func TestManyNamesAsGiven(t *testing.T) {
	cost := func(n int) float64 {
		var d Dataset
		for i := range n {
			d.Path = append(d.Path, fmt.Sprintf("https://h.example/%04d.tar?X-Amz-Signature=hush%d", i, i))
		}
		hidden := d.Hidden()
		if got := hidden.AsGiven(); !slices.Equal(got.Path, d.Path) {
			t.Errorf("%d names came back as others", n)
		}
		return testing.AllocsPerRun(1, func() { hidden.AsGiven() })
	}
	if few, many := cost(50), cost(500); many > 20*few {
		t.Errorf("50 names take memory %v times, and 500 names %v times", few, many)
	}
}
