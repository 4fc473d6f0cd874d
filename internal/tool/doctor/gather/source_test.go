package gather

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// Where a setting got its value, through everything that ordinary scripts put between.
func TestTheLineThatSetsAValue(t *testing.T) {
	const text = `import argparse
from torch.utils.data import DataLoader
WORKERS = 3
CONFIG = {
    "lr": 0.1,
    "loader_workers": 2,
}
class Mine(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
def make(data, workers=0,
         ahead=2):
    return DataLoader(data, num_workers=workers, prefetch_factor=ahead)
def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--num-workers", type=int, default=4)  # num_workers=5
    return p.parse_args()
args = parse()
a = DataLoader(data, num_workers=1)
b = DataLoader(
    data,
    batch_size=4,
    num_workers=2,
)
c = DataLoader(data, num_workers=WORKERS)
d = DataLoader(data, num_workers=CONFIG["loader_workers"])
e = DataLoader(data, num_workers=args.num_workers)
f = Mine(data, num_workers=6)
g = make(data, workers=7)
h = make(data)
i = make(data, 8)
options = dict(num_workers=9)
j = Mine(data, **options)
k = DataLoader(data)
`
	dir := t.TempDir()
	path := filepath.Join(dir, "train.py")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	at := func(begin string) int {
		for n, l := range lines {
			if strings.HasPrefix(l, begin) {
				return n + 1
			}
		}
		t.Fatal(begin)
		return 0
	}
	inMine, inMake := callLine{path, 10, "__init__"}, callLine{path, 13, "make"}
	from := func(begin string) callLine { return callLine{path, at(begin), "<module>"} }
	for begin, c := range map[string]struct {
		through []callLine
		want    string
	}{
		"a = ": {nil, "train.py:19"},
		"b = ": {nil, "train.py:23"},
		"c = ": {nil, "train.py:3"},
		"d = ": {nil, "train.py:6"},
		"e = ": {nil, "train.py:16"},
		"f = ": {[]callLine{inMine}, "train.py:28"},
		"g = ": {[]callLine{inMake}, "train.py:29"},
		"h = ": {[]callLine{inMake}, "train.py:11"},
		"i = ": {[]callLine{inMake}, "train.py:31"},
		"j = ": {[]callLine{inMine}, "train.py:32"},
		"k = ": {nil, ""},
	} {
		src := newSources([]string{path})
		if got := src.setting(append(c.through, from(begin)), "num_workers"); got != c.want {
			t.Errorf("%s: %q, not %q", lines[at(begin)-1], got, c.want)
		}
	}
	if got := newSources([]string{filepath.Join(dir, "gone.py")}).setting([]callLine{from("a = ")}, "num_workers"); got != "train.py:19" {
		t.Errorf("%q", got) // the calls name their files themselves
	}
}

// Whatever a script looks like, reading it ends.
func TestSourcesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.py": "", "open.py": strings.Repeat("f((\n", 500), "self.py": "x = x\ndef f(x): return g(num_workers=x)\n"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		src := newSources([]string{path})
		_ = src.settingsOf([]callLine{{path, 1, "f"}, {path, 99, "g"}, {path, 2, "f"}, {path, -1, ""}})
		src.annotate([]evidence.Frame{{At: name + ":f:1"}, {At: name}, {At: ":"}, {At: name + ":f:x"}})
		_ = src.made("Resize")
	}
}
