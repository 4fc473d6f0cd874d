package internal_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// system is a system as tools/setup.sh meets it: commands that answer as its own would.
type system struct {
	manager  string // its package manager
	user     string // 0: root
	kernel   string // as uname says; Linux
	goes     string // version of its Go; "": none
	goAnswer string // what its Go says in this folder, if it cannot get the wanted one
	lacks    string // of cc, headers, libjpeg, libwebp, static
	cc       string // CC
	arg      string
}

// commands are those of the system that tests need as they are.
var commands = []string{"bash", "cat", "dirname", "env", "head", "mktemp", "printf", "rm", "sed", "sort", "tail", "touch"}

func (s system) run(t *testing.T) (said string, code int) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range commands {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	script := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	installed := filepath.Join(dir, "installed")
	script("uname", "echo "+s.kernel)
	script("id", "echo "+s.user)
	if s.manager != "" {
		// Installs what is lacking, and notes how it was asked.
		script(s.manager, `echo "`+s.manager+` $*" >>`+installed)
	}
	if s.goes != "" {
		old := ""
		if strings.HasPrefix(s.goes, "go1.13") {
			old = `case "${GOFLAGS:-}" in *-buildvcs*) echo 'go: parsing $GOFLAGS: unknown flag -buildvcs=false' >&2; exit 1 ;; esac; `
		}
		script("go", old+`case "$1 ${2:-}" in "env GOVERSION") echo `+s.goAnswer+` ;; "env GOTOOLCHAIN") echo local ;; *) echo "go version `+s.goes+` linux/amd64" ;; esac`)
	}
	cc := s.cc
	if cc == "" {
		cc = "gcc"
	}
	if !strings.Contains(s.lacks, "cc") {
		lacks := `[ ! -e ` + installed + ` ] || exit 0; cat >/dev/null; `
		for word, flag := range map[string]string{"headers": "*", "libjpeg": "*-ljpeg*", "libwebp": "*-lwebp*", "static": "*-static*"} {
			if strings.Contains(s.lacks, word) {
				lacks += `case "$*" in ` + flag + `) exit 1 ;; esac; `
			}
		}
		script(cc, lacks)
	}
	c := exec.Command("bash", "../tools/setup.sh")
	if s.arg != "" {
		c.Args = append(c.Args, s.arg)
	}
	c.Env = []string{"PATH=" + dir, "HOME=" + dir, "GOFLAGS=-buildvcs=false"}
	if s.cc != "" {
		c.Env = append(c.Env, "CC="+s.cc)
	}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if c.ProcessState.ExitCode() != 0 && c.ProcessState.ExitCode() != 2 {
		t.Errorf("it ends with %d", c.ProcessState.ExitCode())
	}
	return strings.TrimSpace(string(out)), c.ProcessState.ExitCode()
}

// What is missing is named with the command that installs it, on the systems that people
// have.
func TestSetup(t *testing.T) {
	const both = "built without libjpeg-turbo and libwebp: progressive and CMYK JPEGs are decoded by Go, more slowly and up to 4 of 255 apart, " +
		"and arithmetic coding is unsupported; lossless WebP is decoded by Go, more slowly"
	const slower = "progressive and CMYK JPEGs up to 4 of 255 apart; arithmetic coding and `stoker pack --jpeg index` are unsupported"
	const skipped = "\nThe tests that compare stoker with what is missing are skipped."
	wanted := func(t *testing.T) string {
		mod, err := os.ReadFile("../go.mod")
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^go (\S+)`).FindStringSubmatch(string(mod))[1]
	}(t)
	for _, c := range []struct {
		name string
		system
		want string // "<go>" is the wanted Go
		code int
	}{
		{"all is there", system{manager: "apt-get"}, "", 0},
		{"all is there, for tests", system{manager: "dnf", arg: "all"}, "", 0},
		{"Debian and Ubuntu", system{manager: "apt-get", lacks: "libjpeg libwebp"}, both + " (sudo apt-get install libjpeg-dev libwebp-dev)", 0},
		{"Fedora", system{manager: "dnf", lacks: "libjpeg libwebp"}, both + " (sudo dnf install libjpeg-turbo-devel libwebp-devel)", 0},
		{"Arch", system{manager: "pacman", lacks: "libjpeg libwebp"}, both + " (sudo pacman -S libjpeg-turbo libwebp)", 0},
		{"Alpine, where one is root", system{manager: "apk", user: "0", lacks: "libjpeg libwebp"}, both + " (apk add libjpeg-turbo-dev libjpeg-turbo-static libwebp-dev libwebp-static)", 0},
		{"brew on Linux", system{manager: "brew", lacks: "libjpeg libwebp"}, both + " (brew install jpeg-turbo webp)", 0},
		{"an unknown system", system{lacks: "libjpeg libwebp"}, both, 0},
		{
			"one of both",
			system{manager: "dnf", lacks: "libwebp", arg: "all"},
			"built without libwebp: lossless WebP is decoded by Go, more slowly (sudo dnf install libwebp-devel)" + skipped, 0,
		},
		{
			"no compiler",
			system{manager: "dnf", lacks: "cc"},
			"no C compiler: the pure-Go engine decodes about a third as fast, " + slower + " (sudo dnf install gcc glibc-devel libjpeg-turbo-devel libwebp-devel)", 0,
		},
		{
			"a compiler without the C library's headers",
			system{manager: "apk", lacks: "headers"},
			"gcc cannot build a C program here: the pure-Go engine decodes about a third as fast, " + slower +
				" (sudo apk add gcc musl-dev libjpeg-turbo-dev libjpeg-turbo-static libwebp-dev libwebp-static)", 0,
		},
		{
			"root and apt, for tests",
			system{manager: "apt-get", user: "0", lacks: "libjpeg", arg: "all"},
			"installing: apt-get install libjpeg-dev", 0,
		},
		{
			"root and apt, for a demo: nothing is installed",
			system{manager: "apt-get", user: "0", lacks: "libwebp"},
			"built without libwebp: lossless WebP is decoded by Go, more slowly (apt-get install libwebp-dev)", 0,
		},
		{
			"a wheel without static libraries",
			system{manager: "dnf", lacks: "static", arg: "wheel"},
			"A wheel carries a static engine: static libraries (libc.a, libjpeg.a, libwebp.a) are missing here. Debian's -dev packages have them.", 2,
		},
		{
			"a wheel for aarch64",
			system{manager: "apt-get", user: "0", cc: "aarch64-linux-gnu-gcc", lacks: "libjpeg libwebp", arg: "wheel"},
			"A wheel carries libjpeg-turbo and libwebp; missing here: libjpeg libwebp (dpkg --add-architecture arm64, then apt-get install libjpeg-dev:arm64 libwebp-dev:arm64)", 2,
		},
		{
			"a wheel for aarch64 without its compiler",
			system{manager: "apt-get", cc: "aarch64-linux-gnu-gcc", lacks: "cc", arg: "wheel"},
			"A wheel's engine is built with a C compiler, libjpeg-turbo and libwebp; here: no C compiler " +
				"(sudo dpkg --add-architecture arm64, then sudo apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross libjpeg-dev:arm64 libwebp-dev:arm64)", 2,
		},
		{
			"no Go",
			system{manager: "pacman", goes: "none"},
			"Go is missing (sudo pacman -S go). Go 1.21 or newer gets Go <go> by itself; or install Go from https://go.dev/dl", 2,
		},
		{
			"Debian 12's Go",
			system{manager: "apt-get", goes: "go1.19.8"},
			"Go 1.19.8 is too old. Go 1.21 or newer gets Go <go> by itself: install one from https://go.dev/dl, " +
				"or a newer package (Debian 12: golang-1.22-go of bookworm-backports, whose command is /usr/lib/go-1.22/bin/go)", 2,
		},
		{
			"a Go that gets no other",
			system{manager: "dnf", goes: "go1.24.3"},
			"Go 1.24.3 is set to get no other one (GOTOOLCHAIN=local), and stoker needs Go <go>: unset GOTOOLCHAIN", 2,
		},
		{
			"a Go that does not know GOVERSION",
			system{manager: "apt-get", goes: "go1.13.8", goAnswer: `""`},
			"Go 1.13.8 is too old. Go 1.21 or newer gets Go <go> by itself: install one from https://go.dev/dl, " +
				"or a newer package (Debian 12: golang-1.22-go of bookworm-backports, whose command is /usr/lib/go-1.22/bin/go)", 2,
		},
		{
			"macOS",
			system{manager: "brew", kernel: "Darwin"},
			"stoker runs on Linux: its engine hands batches over in memfds, which Darwin does not have. In a Linux container it works", 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.system
			if s.kernel == "" {
				s.kernel = "Linux"
			}
			if s.user == "" {
				s.user = "1000"
			}
			switch s.goes {
			case "":
				s.goes = "go" + wanted
			case "none":
				s.goes = ""
			}
			if s.goAnswer == "" {
				s.goAnswer = s.goes
			}
			got, code := s.run(t)
			if want := strings.ReplaceAll(c.want, "<go>", wanted); got != want || code != c.code {
				t.Errorf("%q, and ends with %d; want %q, %d", got, code, want, c.code)
			}
		})
	}
}
