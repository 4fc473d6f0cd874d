package tune

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// Hardware is the properties of a machine that decide how fast it loads.
type Hardware struct {
	CPU    string   `json:"cpu" yaml:"cpu"`
	Online int      `json:"cores" yaml:"cores"`                                   // cores of the machine
	Cores  float64  `json:"usable_cores" yaml:"usable_cores"`                     // by affinity and cgroup
	Quota  float64  `json:"cgroup_cores,omitempty" yaml:"cgroup_cores,omitempty"` // 0: no limit
	Memory int64    `json:"memory_gib" yaml:"memory_gib"`                         // usable, rounded
	GPUs   []string `json:"gpus,omitempty" yaml:"gpus,omitempty"`
}

// Look describes this machine.
func Look(ctx context.Context) Hardware {
	m := system.Look(ctx)
	memory := m.Memory.Value
	if m.Limit.Known() && m.Limit.Value < memory {
		memory = m.Limit.Value
	}
	h := Hardware{CPU: cpuModel(), Online: int(m.Online.Value), Cores: max(m.Cores.Value, 1), Quota: m.Quota.Value, Memory: int64(memory/(1<<30) + 0.5)}
	for _, g := range m.GPUs {
		h.GPUs = append(h.GPUs, g.Name)
	}
	return h
}

// cpuModel is the CPU's name, or, if it has none, its numbers of implementer and
// part.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	found := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if key = strings.TrimSpace(key); found[key] == "" {
			found[key] = strings.TrimSpace(value)
		}
	}
	for _, key := range []string{"model name", "Processor", "CPU part"} {
		if found[key] != "" {
			return strings.Join(strings.Fields(found[key]), " ")
		}
	}
	return "unknown"
}

// Digest is the machine as a key of the playbook: machines of the same kind have
// the same digest.
func (h Hardware) Digest() string {
	b, _ := json.Marshal(h)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
