package s3

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A page of a thousand objects, as AWS writes it.
func BenchmarkListing(b *testing.B) {
	var s strings.Builder
	s.WriteString(`<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>d/</Prefix><EncodingType>url</EncodingType>`)
	for i := range 1000 {
		fmt.Fprintf(&s, `<Contents><Key>d/n%08d_image.jpg</Key><LastModified>2026-11-24T01:10:11.000Z</LastModified><ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>110000</Size><StorageClass>STANDARD</StorageClass></Contents>`, i)
	}
	s.WriteString(`</ListBucketResult>`)
	body := []byte(s.String())
	b.ReportAllocs()
	for b.Loop() {
		p, err := readListing(body, object{"s3://b/d", "b", "d"}, true)
		if err != nil || len(p.Entries) != 1000 {
			b.Fatal(err)
		}
	}
}

// What stores write is read by scan, and not by the slower decoder.
func TestScanReadsWhatStoresWrite(t *testing.T) {
	for name, body := range map[string]string{
		"AWS":       `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>d/</Prefix><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents><Key>d/a+b</Key><LastModified>2026-11-24T01:10:11.000Z</LastModified><ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>110000</Size><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>d/c/</Prefix></CommonPrefixes></ListBucketResult>`,
		"MinIO":     `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>d/</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><IsTruncated>false</IsTruncated><Contents><Key>d/a+b</Key><LastModified>2026-11-24T01:10:11.000Z</LastModified><ETag>&#34;0123456789abcdef0123456789abcdef&#34;</ETag><Size>110000</Size><Owner><ID></ID><DisplayName></DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>d/c/</Prefix></CommonPrefixes><EncodingType>url</EncodingType></ListBucketResult>`,
		"versitygw": `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><CommonPrefixes><Prefix>d/c/</Prefix></CommonPrefixes><Contents><ChecksumAlgorithm></ChecksumAlgorithm><ETag>&#34;0123456789abcdef0123456789abcdef&#34;</ETag><Key>d/a b</Key><LastModified>2026-11-24T01:10:11.000Z</LastModified><Owner/><Size>110000</Size><StorageClass>STANDARD</StorageClass></Contents><IsTruncated>false</IsTruncated><KeyCount>2</KeyCount><Name>b</Name><Prefix>d/</Prefix></ListBucketResult>`,
	} {
		l, ok := scan([]byte(body))
		want := listing{
			EncodingType: l.EncodingType,
			Contents:     []listed{{Key: l.Contents[0].Key, ETag: `"0123456789abcdef0123456789abcdef"`, LastModified: "2026-11-24T01:10:11.000Z", Size: 110000}}, CommonPrefixes: []common{{"d/c/"}},
		}
		if d := cmp.Diff(want, l); !ok || d != "" {
			t.Errorf("%s: %v, %s", name, ok, d)
		}
		page, err := readListing([]byte(body), object{"s3://some-bucket/d", "some-bucket", "d"}, false)
		if err != nil || len(page.Entries) != 2 || page.Entries[0].Name != "s3://some-bucket/d/a b" || page.Entries[1].Name != "s3://some-bucket/d/c" {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
}
