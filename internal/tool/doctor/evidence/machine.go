package evidence

// Machine is what the processes may use.
type Machine struct {
	Kernel string `json:"kernel,omitempty"`
	Online Figure `json:"cores_online,omitzero"`
	Bound  Figure `json:"cores_affinity,omitzero"` // that this process may run on
	Quota  Figure `json:"cores_quota,omitzero"`    // of the tightest cgroup; absent: none
	Cores  Figure `json:"cores,omitzero"`          // that may be used: the least of these
	Cgroup int    `json:"cgroup,omitempty"`        // version 1 or 2

	Memory    Figure `json:"memory_bytes,omitzero"`
	Available Figure `json:"memory_available_bytes,omitzero"`
	Limit     Figure `json:"memory_limit_bytes,omitzero"` // of the tightest cgroup; absent: none
	Used      Figure `json:"memory_used_bytes,omitzero"`  // of that limit
	Swap      Figure `json:"swap_bytes,omitzero"`

	Shm     Figure `json:"shm_bytes,omitzero"` // /dev/shm, where torch's workers put batches
	ShmFree Figure `json:"shm_free_bytes,omitzero"`
	Lock    Figure `json:"memlock_bytes,omitzero"` // locked memory a process may have; absent: no limit
	Files   Figure `json:"open_files,omitzero"`

	Load    Figure            `json:"load,omitzero"` // processes that run or want to, mean of a minute
	Threads map[string]string `json:"threads,omitempty"`
	Disk    Disk              `json:"disk,omitzero"`
	GPUs    []GPU             `json:"gpus,omitempty"`
}

// Disk is what the current folder is stored on.
type Disk struct {
	Path   string `json:"path"`
	Kind   string `json:"kind,omitempty"` // of file system
	Device string `json:"device,omitempty"`
	Spins  *bool  `json:"spins,omitempty"`
	Free   Figure `json:"free_bytes,omitzero"`
}

// IsZero says that nothing is known.
func (d Disk) IsZero() bool { return d.Path == "" }

// GPU is one device, as nvidia-smi tells of it.
type GPU struct {
	Name   string `json:"name"`
	Memory Figure `json:"memory_bytes,omitzero"`
	Used   Figure `json:"used_bytes,omitzero"`
	Busy   Figure `json:"busy_share,omitzero"` // of the last moment, some kernel ran
}

// ThreadSettings are the variables that libraries read to decide how many threads
// they start.
var ThreadSettings = [...]string{"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TOKENIZERS_PARALLELISM", "OMP_PROC_BIND", "KMP_AFFINITY"}

// Usable is the cores that may be used: the least of what is known.
func (m Machine) Usable() (least Figure) {
	for _, f := range [...]Figure{m.Online, m.Bound, m.Quota} {
		if f.Known() && (!least.Known() || f.Value < least.Value) {
			least = f
		}
	}
	return least
}
