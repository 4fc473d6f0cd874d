package mem

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Available is the memory in bytes that this process may still take without
// anybody being killed: the least of what the machine has available and what
// each cgroup above it leaves (page cache that can be dropped counts as left).
func Available() int64 {
	left := machineAvailable("/proc/meminfo")
	for _, dir := range Cgroups("memory") {
		if n, ok := cgroupLeaves(dir); ok {
			left = min(left, n)
		}
	}
	return max(left, 0)
}

func machineAvailable(meminfo string) int64 {
	b, err := os.ReadFile(meminfo)
	if err != nil {
		return 1 << 30
	}
	return fieldOf(b, "MemAvailable:") * 1024
}

// Cgroups are the folders of this process's cgroup and of all its parents, of
// version 2, or of version 1 for the controller ("memory", "cpu").
func Cgroups(controller string) []string {
	return cgroupDirs("/proc/self/cgroup", "/sys/fs/cgroup", controller)
}

func cgroupDirs(self, root, controller string) []string {
	b, err := os.ReadFile(self)
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		base := root
		switch {
		case part[0] == "0" && part[1] == "":
		case strings.Contains(","+part[1]+",", ","+controller+","):
			base = filepath.Join(root, controller)
		default:
			continue
		}
		for p := filepath.Clean("/" + part[2]); ; p = filepath.Dir(p) {
			dirs = append(dirs, filepath.Join(base, p))
			if p == "/" {
				break
			}
		}
	}
	return dirs
}

func cgroupLeaves(dir string) (int64, bool) {
	for _, v := range [...]struct{ limit, usage, cache string }{
		{"memory.max", "memory.current", "inactive_file "},
		{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
	} {
		limit, ok := numberIn(filepath.Join(dir, v.limit))
		if !ok || limit > 1<<60 {
			continue
		}
		usage, ok := numberIn(filepath.Join(dir, v.usage))
		if !ok {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
		return limit - usage + fieldOf(stat, v.cache), true
	}
	return 0, false
}

// numberIn reads a file of one number; "max" is no number.
func numberIn(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// fieldOf is the first number on the line that begins with name; 0 if none does.
func fieldOf(b []byte, name string) int64 {
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseInt(f[0], 10, 64)
				return n
			}
		}
	}
	return 0
}
