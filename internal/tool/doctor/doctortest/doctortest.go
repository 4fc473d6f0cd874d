// Package doctortest has what tests of several of the doctor's rooms begin with: evidence
// that was recorded, and the lines that a script and its worker wrote.
package doctortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// Recorded is the Evidence of a file of testdata. A key that is not ours would be
// a figure that the test means and the rules do not see.
func Recorded(t *testing.T, name string) (ev evidence.Evidence) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../testdata/evidence", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&ev); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return ev
}

// Lines is a folder with the lines of a training process and of its worker, cumulative, two seconds and
// more. Between the first line after the queue is filled and the last the loop
// takes 40 batches of 10 ms wait and 20 ms step; what came before is dearer.
func Lines(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	main := func(at float64, batches int, wait, step float64) string {
		return fmt.Sprintf(`{"v":1,"pid":10,"ppid":1,"role":"main","t":%g,"started":100,"python":"3.11.7","libraries":{"torch":"2.15.0"},"rank":null,"world":null,"exit":null,"loaders":[`+
			`{"id":7,"class":"torch.utils.data.dataloader.DataLoader","where":"train.py:40","kind":"map","length":1000,"per_epoch":100,"batch_size":10,"workers":1,"prefetch":2,"passes":1,"collate":"default","context":"fork",`+
			`"epochs":[{"begin":101,"first":2.5,"end":null,"batches":%d}],"batches":%d,"wait":%g,"wait_first":2,"step":%g,"ready":0.25,"bytes":1000,"wait_hist":{"p50":0.01,"p99":0.03,"max":2},`+
			`"recent":[[105,105.010,0],[105.030,105.031,1],[105.051,105.0515,2],[105.07,105.0705,1],[105.1,null,null]]}]}`, at, batches, batches, wait, step)
	}
	worker := func(at float64, batches int, each float64) string {
		s := each * float64(batches)
		return fmt.Sprintf(`{"v":1,"pid":11,"ppid":10,"role":"worker","t":%g,"started":101,"exit":null,"loaders":[],"worker":{"loader":7,"index":0,"batches":%d,"samples":%d,"timed_samples":20,"fetch":%g,"sample":%g,"sample_cpu":%g,`+
			`"sample_hist":{"p50":0.001,"p99":0.004,"max":0.01,"of":"sample"},"collate":%g,"collate_cpu":%g,"idle":%g,"blocked":0,`+
			`"calls":{"PIL":{"n":%d,"s":%g,"cpu":%g},"sleep":{"n":%d,"s":%g,"cpu":0}},"stacks":[["data.py:load:7",0.75],["data.py:get:3",0.25]],"waits":{"read":0.1,"sleep":0.2},"looks":100,"on_cpu":0.5,"delay":%g,"cpu":%g,`+
			`"io":{"rchar":%d,"read_bytes":0,"syscr":%d},"faults":0,"threads":{"torch":2},"stateful":["seen"]}}`,
			at, batches, 10*batches, s, 0.9*s, 0.5*s, 0.1*s, 0.1*s, s/4, 10*batches, 0.4*s, 0.3*s, 10*batches, 0.2*s, 0.1*s, 0.7*s, 5000*batches, 30*batches)
	}
	write := func(name string, lines ...string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10.jsonl", main(101, 0, 0, 0), main(103.6, 1, 2, 0), main(104, 10, 2.9, 0.5), main(105.2, 50, 3.3, 1.3)+"\n", `{"v":1,"pid":10,"loade`)
	write("11.jsonl", worker(103.9, 10, 0.05), worker(105.3, 50, 0.05)+"\n")
	write("notes.txt", "not a line")
	write("12.jsonl", "")
	return dir
}
