package mds_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/mds"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// A writer that follows the picture in the package's comment, of columns of bytes
// and of 4-byte numbers: what it wrote is what is read, however it is cut into
// shards.
func TestWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := rapid.SliceOfN(rapid.Bool(), 1, 6).Draw(t, "wide")
		var names, encodings []string
		var sizes []any
		for i, w := range wide {
			names = append(names, fmt.Sprintf("c%d", i))
			if w {
				encodings, sizes = append(encodings, "bytes"), append(sizes, nil)
			} else {
				encodings, sizes = append(encodings, "uint32"), append(sizes, 4)
			}
		}
		var want [][][]byte
		m := stagetest.Memory{}
		var shards []any
		for n := range rapid.IntRange(1, 4).Draw(t, "shards") {
			var samples [][]byte
			for range rapid.IntRange(min(1, n), 5).Draw(t, "samples") + 1 - min(1, n) {
				var head, body []byte
				var values [][]byte
				for _, w := range wide {
					v := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "number")
					if w {
						v = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")
						head = binary.LittleEndian.AppendUint32(head, uint32(len(v)))
					}
					body = append(body, v...)
					values = append(values, v)
				}
				want = append(want, values)
				samples = append(samples, append(head, body...))
			}
			config := ""
			if rapid.Bool().Draw(t, "config") {
				text, _ := json.Marshal(map[string]any{"column_names": names, "column_encodings": encodings, "column_sizes": sizes})
				config = string(text)
			}
			shard := binary.LittleEndian.AppendUint32(nil, uint32(len(samples)))
			at := 8 + 4*len(samples) + len(config)
			for i := range len(samples) + 1 {
				shard = binary.LittleEndian.AppendUint32(shard, uint32(at))
				if i < len(samples) {
					at += len(samples[i])
				}
			}
			shard = append(append(shard, config...), bytes.Join(samples, nil)...)
			name := fmt.Sprintf("part/%d.mds", n)
			m[root+"/"+name] = shard
			shards = append(shards, map[string]any{
				"version": 2, "format": "mds", "samples": len(samples), "compression": nil, "zip_data": nil,
				"raw_data":     map[string]any{"basename": name, "bytes": len(shard), "hashes": map[string]string{}},
				"column_names": names, "column_encodings": encodings, "column_sizes": sizes,
			})
		}
		m[root+"/index.json"], _ = json.Marshal(map[string]any{"version": 2, "shards": shards})

		d, err := mds.Open(ctx, m, root, mds.Options{Store: &index.Store{}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if d.Index().Len() != int64(len(want)) {
			t.Fatalf("%d samples, want %d", d.Index().Len(), len(want))
		}
		var s format.Sample
		for id, values := range want {
			if err := stagetest.Read(d, m, int64(id), nil, &s); err != nil {
				t.Fatal(err)
			}
			for i, v := range values {
				if !bytes.Equal(s.Fields[i].Data, v) {
					t.Fatalf("sample %d, column %d: %q, want %q", id, i, s.Fields[i].Data, v)
				}
				if n := d.Size(int64(id), names[i]); n >= 0 && n != int64(len(v)) {
					t.Fatalf("sample %d, column %d: Size is %d of %d", id, i, n, len(v))
				}
			}
		}
	})
}
