package s3

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Whatever a listing is, it becomes entries below its folder that are named as they will be
// asked for, or an error that says where.
func FuzzListing(f *testing.F) {
	for _, seed := range []string{
		`<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents><Key>d/a%20b</Key><Size>3</Size><ETag>&quot;x&quot;</ETag><LastModified>2026-11-24T01:10:11.000Z</LastModified></Contents><CommonPrefixes><Prefix>d/c/</Prefix></CommonPrefixes></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>d/</Key></Contents><Contents><Key>d/x</Key><ETag>W/"1"</ETag></Contents><CommonPrefixes><Prefix>d//</Prefix></CommonPrefixes></ListBucketResult>`,
		`<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult><Contents><Key>&a;</Key></Contents></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>d/../x</Key><Size>99999999999999999999</Size></Contents>`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	dir := object{"s3://some-bucket/d", "some-bucket", "d"}
	f.Fuzz(func(t *testing.T, body []byte, flat bool) {
		if ours, ok := scan(body); ok {
			var theirs listing
			if err := xml.Unmarshal(body, &theirs); err != nil {
				t.Fatalf("encoding/xml does not read it: %v", err)
			}
			theirs.XMLName = xml.Name{}
			if d := cmp.Diff(theirs, ours); d != "" {
				t.Fatal(d)
			}
		}
		page, err := readListing(body, dir, flat)
		if err != nil {
			var fault *remote.Fault
			if !errors.As(err, &fault) && (errs.CodeOf(err) == errs.Bug || errs.From(err).Where.File != dir.name) {
				t.Fatal(err)
			}
			return
		}
		for _, it := range page.Entries {
			o, err := parse(it.Name)
			if err != nil || !strings.HasPrefix(o.key, "d/") || o.key == "d/" || strings.HasSuffix(o.key, "/") || it.Size < 0 || flat && it.Dir ||
				!flat && strings.Contains(o.key[2:], "/") || strings.HasPrefix(it.Version, "W/") {
				t.Fatalf("%+v", it)
			}
		}
	})
}

// The body of a refusal is shown without keys, and is short.
func FuzzProblem(f *testing.F) {
	f.Add([]byte(`<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>The key AKIDSECRETSECRET with wJalrXUtnFEMI</Message><StringToSign>x</StringToSign><Region>eu-west-1</Region></Error>`))
	f.Add([]byte(`<Error><Code>ExpiredToken</Code><Message>session-token-1</Message></Error>`))
	creds := aws.Credentials{AccessKeyID: "AKIDSECRETSECRET", SecretAccessKey: "wJalrXUtnFEMI", SessionToken: "session-token-1"}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := readProblem(body, creds)
		text := p.Message
		for _, secret := range []string{creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken} {
			if strings.Contains(text, secret) {
				t.Fatalf("%q has %s", text, secret)
			}
		}
		if len(text) > mostMessage+3 || len(p.Code) > 64 {
			t.Fatalf("%d and %d bytes", len(p.Code), len(text))
		}
	})
}
