package faults_test

import (
	"encoding/json"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stoker-data/stoker/harness/faults"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

// Each fault once, or with STOKER_FAULTS=FILE (make faults) all with their seeds: the
// report is written to that file.
func TestCampaign(t *testing.T) {
	file := os.Getenv("STOKER_FAULTS")
	if file == "" {
		campaign(t, faults.Campaign{Seeds: 1}, "", faults.Short()...)
		return
	}
	campaign(t, faults.Campaign{Seeds: 20, Long: true}, file, faults.All()...)
}

// Each fault of the other stores once: make test-remote has their servers.
func TestCampaignOfClouds(t *testing.T) {
	campaign(t, faults.Campaign{Seeds: 1}, "", slices.DeleteFunc(faults.All(), func(s faults.Store) bool { return slices.Contains(faults.Short(), s) })...)
}

func campaign(t *testing.T, c faults.Campaign, file string, on ...faults.Store) {
	nothingLeft(t)
	lab := faults.NewLab(t, on...)
	logged := logs(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	c.AtOnce = 6 * runtime.GOMAXPROCS(0)
	only := os.Getenv("STOKER_FAULT")
	c.Only = func(f faults.Fault) bool { return slices.Contains(on, f.On) && strings.Contains(f.Name, only) }
	c.Told = func(o faults.Outcome) {
		if o.Wrong != "" {
			t.Error(o)
		}
		search(t, lab, o.Fault, append(o.Said, o.Wrong)...)
	}
	report, _ := c.Run(t.Context(), lab)
	t.Logf("%+v", report.All)
	if a := report.All; a.Met != a.Injected || a.Transparent+a.Typed+a.Undetected != a.Injected || a.Wrong != 0 {
		t.Errorf("%+v", a)
	}
	text, err := json.Marshal(report)
	stagetest.Must(t, err)
	search(t, lab, "the report", string(text))
	search(t, lab, "the log", logged())
	for _, dir := range []string{temp, os.Getenv("STOKER_CACHE")} {
		stagetest.Must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if dir == temp || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), ".tmp") {
				t.Errorf("%s is left", path)
			}
			data, err := os.ReadFile(path)
			search(t, lab, path, path, string(data))
			return err
		}))
	}
	if file != "" {
		stagetest.Must(t, report.Write(file))
	}
}

// search fails the test if something that was shown or stored has a secret.
func search(t *testing.T, lab *faults.Lab, where string, texts ...string) {
	t.Helper()
	for what, secret := range lab.Secrets {
		for _, text := range texts {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the %s is in %.2000q", where, what, text)
			}
		}
	}
}

// logs collects what Go's own packages log, such as bytes after the end of an answer.
func logs(t *testing.T) func() string {
	var mu sync.Mutex
	var b strings.Builder
	log.SetOutput(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	}))
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// nothingLeft fails the test if a goroutine or a descriptor is left when its servers have
// ended.
func nothingLeft(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		stagetest.Must(t, err)
		return len(names)
	}
	before := open()
	t.Cleanup(func() {
		goleak.VerifyNone(t, ignore)
		if after := open(); after > before {
			t.Errorf("%d descriptors are left", after-before)
		}
	})
}
