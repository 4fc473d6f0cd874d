package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Finding is one known mistake, seen here, with what to change. It may cost
// nothing today; the verdict says what does.
type Finding struct {
	Name   string `json:"name"`
	What   string `json:"what"` // what was seen, with its figures
	Source string `json:"source"`
	Fix    Change `json:"fix"`
	Loader string `json:"loader,omitempty"`
}

// The names of findings.
const (
	NoWorkers        = "no workers"
	ManyWorkers      = "too many workers"
	NotPinned        = "not pinned"
	PinnedBlocking   = "pinned without non_blocking"
	StatefulDataset  = "stateful dataset under persistent workers"
	SharedHandles    = "handles shared over fork"
	LargeIndex       = "large pickled index"
	PythonCollate    = "Python collate"
	PaddingWaste     = "padding waste"
	WrongOrder       = "wrong order of operations"
	TinyFiles        = "millions of tiny files"
	ScatteredReads   = "small samples in full order"
	SmallPrefetch    = "prefetch too small"
	SetEpochMissing  = "set_epoch forgotten"
	CUDABeforeFork   = "CUDA before fork"
	ThreadsInWorkers = "thread oversubscription in workers"
	SmallShm         = "/dev/shm too small"
	TokenisePer      = "tokenising per sample"
	TornDown         = "workers torn down every epoch"
	UnevenSteps      = "uneven steps"
)

const (
	// pickledMuch is bytes of a dataset that take a good part of a second to
	// pickle and read, for each worker.
	pickledMuch = 32e6
	// tiny is bytes of a file that take less to read than to find.
	tiny = 256 << 10
	// millions is files that make every walk, copy and shuffle slow, whatever reading
	// them costs today.
	millions = 1_000_000
	// pageable is bytes of a batch below which a copy to a device takes
	// microseconds either way.
	pageable = 1 << 20
	// container is the size of /dev/shm that containers are given unless asked.
	container = 64 << 20
)

// check is one mistake: what was seen, where it was measured, and the change; ok
// is false where it was not made.
type check struct {
	name string
	look func(*view) (what, source string, fix Change, ok bool)
}

// checks are asked of every loop, in this order.
func checks() []check {
	return []check{
		{NoWorkers, noWorkers},
		{ManyWorkers, manyWorkers},
		{TornDown, tornDown},
		{SmallPrefetch, smallPrefetch},
		{ThreadsInWorkers, threadsInWorkers},
		{CUDABeforeFork, cudaFirst},
		{SharedHandles, sharedHandles},
		{StatefulDataset, stateful},
		{LargeIndex, largeIndex},
		{SmallShm, smallShm},
		{FewSlow, slowFew},
		{Repeated, repeatedWork},
		{UnevenSteps, unevenSteps},
		{TinyFiles, tinyFiles},
		{ScatteredReads, scattered},
		{WrongOrder, wrongOrder},
		{TokenisePer, tokenising},
		{PythonCollate, pythonCollate},
		{PaddingWaste, padding},
		{NotPinned, notPinned},
		{PinnedBlocking, pinnedBlocking},
		{SetEpochMissing, setEpoch},
	}
}

func findings(ev evidence.Evidence) (out []Finding) {
	if len(ev.Loops) == 0 {
		if what, source, fix, ok := smallShm(&view{&loop.View{Evidence: ev}}); ok {
			out = append(out, Finding{SmallShm, what, source, fix, ""})
		}
		return out
	}
	for _, c := range checks() {
		for _, l := range ev.Loops {
			what, source, fix, ok := c.look(newView(ev, l))
			f := Finding{c.name, what, source, fix, l.Settings.Where}
			known := slices.ContainsFunc(out, func(o Finding) bool { return o.Name == f.Name && o.Loader == f.Loader })
			if ok && !known { // ranks make the same mistakes
				out = append(out, f)
			}
		}
	}
	return out
}

func noWorkers(v *view) (string, string, Change, bool) {
	return fmt.Sprintf("The training process makes its batches itself: %s of %s per batch.", show.Seconds(v.Loop.Cost.Batch.Value), show.Seconds(v.Now)), evidence.FromHook,
		v.raised(v.lacking(), "batches are made while the trainer works"),
		v.Loop.Settings.Workers == 0 && v.Waits() && v.Loop.Cost.Batch.Known() && v.Matters()
}

// lacking is the workers that a loop without any should have: as many as its verdict
// asks for, where that asks for some.
func (v *view) lacking() int {
	switch n := v.Needed(); {
	case !v.TooDear():
		return v.Enlist()
	case v.Costliest().Kind == evidence.Read && n <= waiters && !v.Full():
		return n
	default:
		return min(n, v.Usable())
	}
}

func manyWorkers(v *view) (string, string, Change, bool) {
	n := v.Loop.Settings.Workers
	use := max(v.Usable(), v.Needed())
	if !v.Loop.Cost.Batch.Known() || !v.Loop.Wait.Known() {
		use = max(1, int(v.Evidence.Machine.Cores.Value))
	} else if v.Needed() > n { // waiting workers cost little
		use = max(v.Usable(), min(v.Needed(), n))
		if v.Part(evidence.Read).Blocked+v.Part(evidence.Python).Blocked < 0.5*v.Sum() {
			use = v.Usable()
		}
	}
	return fmt.Sprintf("%s on %s, where %d would do.", show.Things(n, "worker"), show.Cores(v.Evidence.Machine.Cores.Value), use), "settings",
		Change{v.kept(workers(use)), "less memory, a faster start"},
		v.Evidence.Machine.Cores.Known() && n > 2*use
}

func tornDown(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	return fmt.Sprintf("For each of %d epochs %s must start; the first batch comes after %s.", v.Loop.Epochs, show.Things(s.Workers, "worker"), show.Took(v.Loop.First.Value)), evidence.FromHook,
		v.stayingWorkers(),
		s.Workers > 0 && !s.Persistent && v.Loop.Epochs >= 2 && v.Start >= 0.05
}

// stayingWorkers keeps workers from one epoch to the next, as many as are of use.
func (v *view) stayingWorkers() Change {
	if v.remade() {
		return changeOfStart(v)[0]
	}
	n := v.Loop.Settings.Workers
	if _, _, _, many := manyWorkers(v); many {
		n = v.Enough()
	}
	return Change{v.loader(workers(n), "persistent_workers=True"), "workers stay"}
}

func smallPrefetch(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	thin := s.Prefetch == 1 && v.Waits()
	return fmt.Sprintf("prefetch_factor=%d: a batch that takes longer than others is waited for.", s.Prefetch), "settings",
		morePrefetch(v)[0],
		s.Workers > 0 && v.Middle() > v.Start && !v.ManyThreads() && (thin || shallowHolds(v))
}

// shallowHolds asks the rule of that verdict, where its figures are there.
func shallowHolds(v *view) bool { return len(shallow.lacks(v)) == 0 && shallow.holds(v) }

func threadsInWorkers(v *view) (string, string, Change, bool) {
	return v.threadsText(), evidence.FromHook, v.oneThread(), v.Evidence.Machine.Cores.Known() && v.ManyThreads()
}

func cudaFirst(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	what, or := "CUDA was in use before workers were forked, and one of them used it; a forked process cannot.", "or leave the device to the training process: workers return what is on the host"
	if len(s.OnDevice) > 0 {
		what, or = fmt.Sprintf("The dataset has %s on the device, and its workers are forked; a forked process cannot use CUDA.", strings.Join(s.OnDevice, ", ")), "or keep in the dataset what is on the host, and move it in the loop"
	}
	return what, evidence.FromHook, Change{v.loader(`multiprocessing_context="spawn"`), or},
		s.CUDAFirst && s.Workers > 0 && s.Context == "fork"
}

func sharedHandles(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	return fmt.Sprintf("The dataset holds %s open when workers are forked: they share one position in the file.", strings.Join(s.Handles, ", ")), evidence.FromHook,
		Change{"if self.file is None: self.file = open(self.path, \"rb\")", "in __getitem__, so that each worker opens its own"},
		len(s.Handles) > 0 && s.Workers > 0 && s.Context != "spawn"
}

func stateful(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	return fmt.Sprintf("The dataset changes %s while it is iterated; workers that stay keep their own copies of it.", strings.Join(s.Stateful, ", ")), evidence.FromHook,
		Change{v.loader("persistent_workers=False"), "or keep such state outside the dataset"},
		s.Persistent && len(s.Stateful) > 0 && s.Workers > 0
}

func largeIndex(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	// Forked workers share arrays, mapped or not: only counted objects are copied when they are looked at.
	mapped := s.Context == "fork" && (slices.Contains(s.Stores, "memmap") || slices.Contains(s.Stores, "array"))
	return fmt.Sprintf("The dataset is %s that every worker gets a copy of, %s of them.", show.Bytes(s.Pickled.Value), show.Things(s.Workers, "worker")), s.Pickled.Source,
		Change{"self.index = np.load(path, mmap_mode=\"r\")", "a mapped file is shared; lists of Python objects are copied when they are only looked at"},
		s.Workers > 0 && s.Pickled.Value >= pickledMuch && !mapped
}

func smallShm(v *view) (string, string, Change, bool) {
	s, free := v.Loop.Settings, v.Evidence.Machine.ShmFree
	need := v.Loop.BatchBytes.Value * float64(s.Workers*max(2, s.Prefetch))
	what := fmt.Sprintf("Batches of %s, %d ahead, need %s of /dev/shm, which has %s free.", show.Bytes(v.Loop.BatchBytes.Value), s.Workers*max(2, s.Prefetch), show.Bytes(need), show.Bytes(free.Value))
	small := s.Workers > 0 && v.Loop.BatchBytes.Known() && need > free.Value
	if !small && v.Evidence.Machine.Shm.Known() && v.Evidence.Machine.Shm.Value <= container {
		what, small = fmt.Sprintf("/dev/shm has %s: workers that send larger batches die of a bus error.", show.Bytes(v.Evidence.Machine.Shm.Value)), s.Workers > 0 || len(v.Evidence.Loops) == 0
	}
	return what, free.Source, Change{"docker run --shm-size=8g ...", "or an emptyDir of medium Memory at /dev/shm in Kubernetes"}, small && free.Known()
}

func tinyFiles(v *view) (string, string, Change, bool) {
	c := v.Loop.Cost
	again, _ := v.repeats() // one file that is opened for every sample is not one file per sample
	return fmt.Sprintf("A sample opens %.1f files of about %s, and waits %s for them.", c.Opens.Value, show.Bytes(c.Read.Value/max(c.Opens.Value, 1e-9)), show.Seconds(v.Part(evidence.Read).Seconds())), c.Opens.Source,
		Change{v.pack(""), "the same samples in few large files"},
		again.name == "" && c.Opens.Known() && c.Read.Known() && c.Opens.Value >= 0.9 && c.Read.Value/c.Opens.Value < tiny && v.Part(evidence.Read).Seconds() >= 0.2*v.Sum() && (v.slowed(evidence.Read) || v.Loop.Settings.Length != nil && *v.Loop.Settings.Length >= millions)
}

// scattered: each sample of an order that is full is a seek on a disk that turns, and a
// request to a store, where neighbours would cost one together.
func scattered(v *view) (string, string, Change, bool) {
	c, s := v.Loop.Cost, v.Evidence.Storage
	of := "a disk that seeks for each sample"
	if s.Remote != "" {
		of = "a store that needs a request for each sample"
	}
	fix := Change{"order: {shuffle: block}", "or shuffle=\"block\": neighbours are read together; `stoker order --quality` says how well it mixes"}
	if c.Opens.Value >= 0.5 {
		fix = Change{v.pack(""), "then shuffle=\"block\" over the shards: neighbours are read together"}
	}
	return fmt.Sprintf("Samples of about %s are read in full order from %s.", show.Bytes(c.Read.Value), of), c.Read.Source, fix,
		v.Loop.Settings.Shuffle == "full" && (s.Rotational || s.Remote != "" && v.slowed(evidence.Read)) && c.Read.Known() && c.Read.Value < whole
}

// slowed says whether a kind of costs can be why the loop waits: in all workers
// together it takes at least half a step for a batch.
func (v *view) slowed(kind string) bool {
	return v.Waits() && v.Part(kind).Seconds()*v.Batch/float64(max(1, v.Loop.Settings.Workers)) >= 0.5*v.Loop.Step.Value
}

// shrinks and pixelwise are transforms that leave fewer pixels, and those that
// cost as much as there are pixels: these should come after those.
var (
	pixelwise = []string{"ToTensor", "ConvertImageDtype", "Normalize", "ColorJitter", "GaussianBlur", "RandomRotation", "RandomAffine", "ToDtype", "RandomPerspective"}
)

func wrongOrder(v *view) (string, string, Change, bool) {
	early := ""
	for _, name := range v.Loop.Settings.Transforms {
		name = name[strings.LastIndexByte(name, '.')+1:]
		if early == "" && slices.Contains(pixelwise, name) {
			early = name
		}
		if early != "" && slices.Contains(loop.Shrinks, name) {
			return fmt.Sprintf("%s runs on all pixels before %s removes most of them.", early, name), evidence.FromHook,
				Change{fmt.Sprintf("Compose([%s(...), ..., %s(...)])", name, early), "first what leaves fewer pixels"}, true
		}
	}
	return "", "", Change{}, false
}

func tokenising(v *view) (string, string, Change, bool) {
	p := v.Part(evidence.Tokenize)
	return fmt.Sprintf("%s is called for every sample: %s of its %s.", p.Name, show.Seconds(p.Seconds()), show.Seconds(v.Sum())), evidence.FromHook,
		Change{"stoker pack corpus tokens --tokenize gpt2", "tokenise once; or a whole batch at a time in collate"},
		p.Name != "" && p.Seconds() >= 0.1*v.Sum() && perSample(v, p.Name)
}

// perSample says whether a stage is called at least once a sample, and not once
// a batch.
func perSample(v *view, name string) bool {
	for _, s := range v.Loop.Cost.Stages {
		if s.Name == name {
			return s.Calls.Value >= 0.9 && (v.Batch > 1 || s.Calls.Value > 1.5)
		}
	}
	return false
}

func pythonCollate(v *view) (string, string, Change, bool) {
	c, s := v.Loop.Cost, v.Loop.Settings
	return fmt.Sprintf("%s takes %s of the %s that a batch costs.", s.Collate, show.Seconds(c.Collate.Value), show.Seconds(c.Batch.Value)), c.Collate.Source,
		changeOfCollate(v)[0],
		s.Collate != "" && s.Collate != "default" && c.Collate.Known() && c.Collate.Value >= max(0.001, 0.15*c.Batch.Value)
}

func padding(v *view) (string, string, Change, bool) {
	p := v.Loop.Padding
	return fmt.Sprintf("%s of what batches hold is padding.", show.Percent(p.Value)), p.Source,
		Change{"batch_sampler=... # sorted into buckets of like length", "or stoker.DataLoader(lengths=..., bucket=...)"},
		p.Known() && p.Value >= 0.3
}

func notPinned(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	return fmt.Sprintf("%s are copied to the device from pageable memory: each is copied twice.", show.Bytes(v.Loop.BatchBytes.Value)), evidence.FromHook,
		Change{v.loader("pin_memory=True"), "and batch.to(device, non_blocking=True)"},
		s.Blocking+s.NonBlocking > 0 && !s.Pin && (s.Pinned == nil || !*s.Pinned) && v.Loop.BatchBytes.Value >= pageable
}

func pinnedBlocking(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	return fmt.Sprintf("Batches are pinned, and %d of %d copies wait until they are done.", s.Blocking, s.Blocking+s.NonBlocking), evidence.FromHook,
		Change{"batch.to(device, non_blocking=True)", "the copy runs beside the computing"},
		(s.Pin || s.Pinned != nil && *s.Pinned) && s.Blocking > 0 && s.Blocking > s.NonBlocking
}

func setEpoch(v *view) (string, string, Change, bool) {
	s := v.Loop.Settings
	what := s.Sampler + ".set_epoch was not called between epochs: every epoch has the same order."
	same := s.OrderRepeated != nil && *s.OrderRepeated && (s.Shuffled == nil || *s.Shuffled)
	forgot := s.SetEpoch != nil && !*s.SetEpoch
	return what, evidence.FromHook, Change{"loader.sampler.set_epoch(epoch)", "at the start of each epoch"},
		v.Loop.Epochs >= 2 && forgot && (same || s.OrderRepeated == nil)
}

// Mistakes are the names of all findings.
func Mistakes() (names []string) {
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}
