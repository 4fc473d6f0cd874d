package judge

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// What to change, as code or as a command to paste.

// loader writes the settings of the loop's loader that are to change.
func (v *view) loader(settings ...string) string {
	if v.Loop.Settings.Class == evidence.OwnClass {
		return "stoker.DataLoader(..., " + strings.Join(settings, ", ") + ")"
	}
	return "DataLoader(..., " + strings.Join(settings, ", ") + ")"
}

// pack is the command that packs the dataset.
func (v *view) pack(options string) string {
	data := "data/train"
	if s := v.Evidence.Subject; s.Kind == evidence.OfSpec && len(s.Command) == 1 {
		switch filepath.Ext(s.Command[0]) {
		case ".yaml", ".yml", ".json": // a Spec
		default:
			data = show.ShellWord(s.Command[0])
		}
	}
	return strings.TrimRight("stoker pack "+data+" packed "+options, " ")
}

// pictures says whether samples are: what else lanes do to a sample is to write numbers
// in another type.
func (v *view) pictures() bool {
	return v.Loop.Cost.Opens.Known() || slices.ContainsFunc(v.Loop.Cost.Stages, func(s evidence.Stage) bool { return s.Kind == evidence.Transform })
}

func workers(n int) string { return fmt.Sprintf("num_workers=%d", n) }

// kept adds what keeps workers from one epoch to the next, where it is not on.
func (v *view) kept(settings ...string) string {
	if !v.Loop.Settings.Persistent && v.Loop.Settings.Class != evidence.OwnClass {
		settings = append(settings, "persistent_workers=True")
	}
	return v.loader(settings...)
}

// raised is a change to more workers. Each of them iterates over all of an iterable
// dataset: what deals that out comes first, in the same code, so that nobody raises
// the one without the other.
func (v *view) raised(n int, why string) Change {
	c := Change{v.kept(workers(n)), why}
	s := v.Loop.Settings
	if s.Kind != "iterable" || s.Class == evidence.OwnClass || n < 2 {
		return c
	}
	if dealsOut(s.Dataset) {
		c.Why += fmt.Sprintf("; it deals out whole shards or files: have at least %d of them", n)
		return c
	}
	in := "__iter__"
	if name := evidence.Short(s.Dataset); name != "" {
		in = name + ".__iter__"
	}
	return Change{
		strings.Join([]string{
			"# first in " + in + ", if it is not there yet:",
			"info = torch.utils.data.get_worker_info()",
			"mine = files[info.id::info.num_workers] if info else files",
			"# then:",
			c.Code,
		}, "\n"),
		fmt.Sprintf("every worker runs all of __iter__: without this %d workers give every sample %d times. Divide what is cheap to skip, files or numbers, and not what was made of it. %s", n, n, sentence(why)),
	}
}

// dealsOut says whether a dataset's class is of a library whose iterable datasets divide
// themselves among workers.
func dealsOut(class string) bool {
	root, _, _ := strings.Cut(class, ".")
	return slices.Contains([]string{"datasets", "webdataset", "streaming", "litdata"}, root)
}

// afterwards is a transform that leaves fewer pixels and comes after the costliest one; by
// the order that is known of the transforms, or by the lines that they are made in.
func (v *view) afterwards() string {
	costly := v.StageNamed(v.Costliest())
	name := evidence.Short(costly.Name)
	if i := slices.IndexFunc(v.Loop.Settings.Transforms, func(t string) bool { return evidence.Short(t) == name }); i >= 0 {
		for _, t := range v.Loop.Settings.Transforms[i+1:] {
			if slices.Contains(loop.Shrinks, evidence.Short(t)) {
				return evidence.Short(t)
			}
		}
		return ""
	}
	file, line := madeAt(costly)
	for _, s := range v.Loop.Cost.Stages {
		if f, n := madeAt(s); file != "" && f == file && n > line && n <= line+nearby && slices.Contains(loop.Shrinks, evidence.Short(s.Name)) {
			return evidence.Short(s.Name)
		}
	}
	return ""
}

// nearby is how many lines a list of transforms may have.
const nearby = 16

// madeAt is the file and the line where the script makes a transform; none if not known.
func madeAt(s evidence.Stage) (file string, line int) {
	file, number, ok := strings.Cut(loop.LineOnly(s.At), ":")
	if line, err := strconv.Atoi(number); ok && err == nil && strings.HasPrefix(s.Name, "torchvision.") {
		return file, line
	}
	return "", 0
}

// sentence begins with a capital, and ends with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func fewerWorkers(v *view) []Change {
	return []Change{{v.kept(workers(v.Enough())), "as fast on these cores, with less memory and a faster start"}}
}

func morePrefetch(v *view) []Change {
	return []Change{{v.loader(fmt.Sprintf("prefetch_factor=%d", max(4, 4*v.Job.Prefetch))), "ready batches carry the loop over the slow ones"}}
}

// fewerEpochs makes longer ones of a dataset that is soon over.
var fewerEpochs = Change{"sampler=RandomSampler(data, num_samples=10 * len(data))", "fewer, longer epochs start less often"}

// remade says whether the script makes a new loader for every epoch.
func (v *view) remade() bool {
	return v.Loop.Settings.Made >= 2 && v.Loop.Settings.Made >= v.Loop.Epochs
}

func changeOfStart(v *view) []Change {
	s := v.Loop.Settings
	fewer := v.Loop.PerEpoch.Value < 100 && s.Kind != "iterable"
	if s.Class == evidence.OwnClass {
		return []Change{{"stoker.DataLoader(..., prefetch=8)", "the next epoch is begun while this one ends, if set_epoch does not say another"}}
	}
	if s.Workers > 0 && v.remade() {
		name := cmp.Or(s.Name, "loader")
		return []Change{{
			fmt.Sprintf("%s = %s  # once, before the first epoch", name, v.loader(workers(s.Workers), "persistent_workers=True")),
			fmt.Sprintf("%s makes a new DataLoader for every epoch, and that starts new workers whatever its settings are: keep the first one and iterate over it again", cmp.Or(s.Where, "the script")),
		}}
	}
	if s.Workers > 0 && !s.Persistent {
		out := []Change{{v.loader(workers(s.Workers), "persistent_workers=True"), "keeps the workers from one epoch to the next"}}
		if s.Pickled.Value >= pickledMuch {
			out = append(out, Change{"self.index = np.load(path, mmap_mode=\"r\")", fmt.Sprintf("the dataset is %s that goes to each worker; a mapped file is shared", show.Bytes(s.Pickled.Value))})
		}
		if v.OneBatch() && fewer {
			out = append(out, fewerEpochs)
		}
		return out
	}
	out := []Change{{"loader = stoker.DataLoader(dataset, ...)", "prefetches the next epoch while this one ends"}}
	if fewer {
		out = append(out, fewerEpochs)
	}
	return out
}

func changeOfMemory(v *view) []Change {
	out := []Change{{v.loader(workers(max(1, v.Loop.Settings.Workers/2)), "prefetch_factor=2"), "each worker has a copy of what it touches, and batches take memory"}}
	if v.Evidence.Run.Limit.Known() {
		out = append(out, Change{fmt.Sprintf("docker run --memory %dg ...", int(2*v.Evidence.Run.Limit.Value/(1<<30))+1), "or a higher limit for the cgroup"})
	}
	return out
}

func changeOfQuota(v *view) []Change {
	return []Change{
		{fmt.Sprintf("docker run --cpus %.0f ...", v.Host()), "or resources.limits.cpu in Kubernetes, --cpus-per-task in Slurm"},
		{"export OMP_NUM_THREADS=1", "libraries start a thread for each core of the machine, not of the quota"},
	}
}

func changeOfRanks(v *view) []Change {
	look := fmt.Sprintf("taskset -pc %d", v.Loop.PID)
	other := v.Others()
	if !other.Cost.Batch.Known() || v.Loop.Cost.Batch.Value <= 1.3*other.Cost.Batch.Value {
		return []Change{{look, "run it during training: it shows which cores this rank may use; every rank should have the same number"}}
	}
	dearer := fmt.Sprintf("rank %d's samples cost %.1f times as much as those of rank %d", v.Loop.Rank, v.Loop.Cost.Batch.Value/other.Cost.Batch.Value, other.Rank)
	deal := Change{"DistributedSampler(dataset, shuffle=True)", dearer + ": deal them out at random, and call set_epoch in every epoch"}
	if v.Loop.Settings.Sampler != "DistributedSampler" { // the script deals them out itself: a sampler on top would do it twice
		deal = Change{"items = items[rank::world]  # where the script picks each rank's part of the list", dearer + ": neighbours in the list are alike, so give each rank every Nth item instead of one block; or shuffle the list first, with the same seed in all ranks"}
	}
	return []Change{deal, {look, "or this rank has fewer cores than the others; run this during training to see them"}}
}

// oneThread keeps the function that the script's workers begin with already.
func (v *view) oneThread() Change {
	if v.OtherThreads() {
		return Change{
			"import os; os.environ[\"OPENBLAS_NUM_THREADS\"] = \"1\"  # in the first line of the script, before numpy is imported",
			"NumPy starts a thread per core in each worker, and workers are the parallelism already; for conda's NumPy it is MKL_NUM_THREADS, for OpenCV cv2.setNumThreads(0)",
		}
	}
	lines := []string{"def one_thread(worker):"}
	switch init := v.Loop.Settings.Init; {
	case strings.Contains(init, "<lambda>"):
		lines = append(lines, "    init(worker)  # your current worker_init_fn lambda, given a name")
	case init != "":
		lines = append(lines, "    "+evidence.Short(init)+"(worker)  # your current worker_init_fn")
	}
	lines = append(lines, "    torch.set_num_threads(1)", v.loader("worker_init_fn=one_thread"))
	return Change{strings.Join(lines, "\n"), "workers are the parallelism; set OMP_NUM_THREADS=1 and cv2.setNumThreads(0) too"}
}

func changeOfFiles(v *view) []Change {
	if v.Evidence.Storage.Remote != "" {
		return changeOfRemote(v)
	}
	out := []Change{}
	if v.waitsAside() {
		out = append(out, v.raised(v.waiting(), "waiting uses no core: more workers wait in parallel"))
	}
	if d := v.Data(); d != loop.OfPictures && d != loop.OfAny {
		return append(out, v.stored()...)
	}
	return append(out,
		Change{v.pack(""), "the same samples in few large files"},
		Change{`stoker.WebDataset("packed/shard-*.tar")`, "many files are read at once, before they are needed"},
	)
}

// waitsAside says whether more workers would wait side by side for the same reads.
func (v *view) waitsAside() bool {
	n := v.Loop.Settings.Workers
	return v.Loop.Settings.Class != evidence.OwnClass && v.waiting() > n && !v.Full() && v.idle()
}

// stokers is a loader of stoker over the data, where there is a dataset of stoker's for it.
func (v *view) stokers(why string) []Change {
	of := ""
	switch v.Data() {
	case loop.OfPictures:
		of = `stoker.ImageFolder("data/train", transform=...)`
	case loop.OfHDF5:
		of = fmt.Sprintf("stoker.HDF5Dataset(%q)", v.File("data.h5", ".h5", ".hdf5"))
	case loop.OfLMDB:
		of = `stoker.LMDBDataset("data.lmdb")`
	case loop.OfTokens:
		of = `stoker.TokenDataset("tokens.npy", length=1024)`
	case loop.OfNpy:
		of = fmt.Sprintf("stoker.NpyDataset(%q)", v.File("data.npy", ".npy"))
	case loop.OfAny:
		of = "..."
	default:
		return nil
	}
	if of == "..." {
		return []Change{{"stoker.DataLoader(...)", why}}
	}
	return []Change{{"stoker.DataLoader(" + of + ", ...)", why}}
}

func changeOfBytes(v *view) []Change {
	if v.Evidence.Storage.Remote != "" {
		return changeOfRemote(v)
	}
	if out := v.stored(); out != nil && v.Loop.Settings.Class != evidence.OwnClass && v.Data() != loop.OfHDF5 && v.Data() != loop.OfNpz { // what is compressed is smaller
		return append(out, Change{"cp -r data /local/nvme", "or use faster storage"})
	} else if out != nil && v.Loop.Settings.Class != evidence.OwnClass {
		return []Change{{"cp -r data /local/nvme", "faster storage; or fewer bytes per sample: a smaller type, smaller arrays"}}
	}
	return []Change{
		{v.pack("--resize 256"), "fewer bytes per sample"},
		{"cp -r data /local/nvme", "or faster storage; cache=\"8GiB\" keeps what is read twice"},
	}
}

// waiters is the most workers that are asked for only to wait side by side.
const waiters = 64

func changeOfReads(v *view) []Change {
	if v.Evidence.Storage.Remote != "" {
		return changeOfRemote(v)
	}
	if v.Loop.Settings.Class == evidence.OwnClass {
		return []Change{{"order: {shuffle: block}", "reads neighbours together; `stoker order --quality` says how well it mixes"}, {"stoker.DataLoader(..., cache=\"8GiB\")", "keeps what is read twice"}}
	}
	var out []Change
	if v.waitsAside() {
		out = append(out, v.raised(v.waiting(), "waiting uses no core: more workers wait in parallel"))
	}
	return append(out, v.stokers("reads ahead, 16 reads at a time, instead of waiting for each one")...)
}

// changeOfRemote is what makes fewer requests, or fewer bytes, of data that come over a
// network: the loop reads ahead by as many connections as pay already.
func changeOfRemote(v *view) (out []Change) {
	c, full := v.Loop.Cost, v.Full()
	switch {
	case c.Opens.Value >= 0.5 && c.Read.Value < whole:
		out = append(out, Change{v.pack(""), "then upload the shards: a request then brings many samples instead of one"})
	case !full && v.Loop.Settings.Shuffle == "full":
		out = append(out, Change{"order: {shuffle: block}", "or shuffle=\"block\": neighbours come in one request; `stoker order --quality` says how well it mixes"})
	}
	if full {
		out = append(out, Change{v.pack("--resize 256"), "fewer bytes per sample: more connections would not bring more"})
	}
	switch {
	case v.Evidence.Storage.Refused.Value >= refusing:
		out = append(out, Change{"fetch: {connections: 8}", "for each engine, if many share the limit; or ask for a higher limit, or spread the data over more prefixes"})
	case !full && v.Evidence.Storage.Streams < 8:
		out = append(out, Change{"fetch: {connections: auto}", "or leave connections= out: few connections mostly wait for answers"})
	}
	return append(out, Change{"cp -r data /local/nvme", "or train in the region of the data; cache=\"8GiB\" keeps samples for the next epoch"})
}

func changeOfCollate(v *view) []Change {
	if v.Loop.Settings.Class == evidence.OwnClass {
		return []Change{{"uint8 fields, and floats made on the device", "fewer bytes per batch"}}
	}
	if c := v.Loop.Settings.Collate; c != "" && c != "default" {
		if v.Data() == loop.OfTokens || v.Loop.Padding.Known() || strings.Contains(strings.ToLower(evidence.Short(c)), "pad") {
			return []Change{{"torch.nn.utils.rnn.pad_sequence([torch.as_tensor(s) for s in sequences], batch_first=True)", evidence.Short(c) + " works sample by sample, and number by number where samples are lists; this pads all of a batch in one call, to the longest in it"}}
		}
		return []Change{{"def collate(batch): return torch.stack(...)", evidence.Short(c) + " works sample by sample; make tensors of one shape in __getitem__ and stack them once"}}
	}
	if v.Integers() {
		return []Change{{"def __getitem__(self, i): return torch.from_numpy(self.tokens[i:i + n])", "one array per sample instead of a Python list of numbers: lists become tensors one number at a time"}}
	}
	return []Change{{"def __getitem__(self, i): return torch.from_numpy(a)", "fewer and larger fields per sample: arrays, not lists of numbers"}}
}

func changeOfDecode(v *view) []Change {
	if v.Loop.Settings.Class == evidence.OwnClass && !v.pictures() {
		return []Change{{"fields in the type that they are stored in", "widened on the device: most of the work is to write wider numbers"}}
	}
	if v.Loop.Settings.Class == evidence.OwnClass {
		return []Change{{v.pack("--resize 256"), "store pictures at the size that training uses"}, {v.pack("--jpeg index"), "the same pixels, and crops that are cheaper to decode"}}
	}
	if out := v.stored(); out != nil {
		return out
	}
	if v.Data() != loop.OfPictures {
		return []Change{{"np.save(\"decoded.npy\", samples)  # once; then self.data = np.load(\"decoded.npy\", mmap_mode=\"r\")", "decode once instead of in every epoch"}}
	}
	if d := v.Loop.Settings.Dataset; d != "" && !strings.HasPrefix(d, "torchvision.datasets.folder.") && v.StageOfName("PIL") > 0 {
		side := 256
		if h, w := pictureSize(v.Loop.Settings.Shape); h > 0 {
			side = 2 * max(h, w)
		}
		at := loop.LineOnly(v.StageNamed(v.Part(evidence.Decode)).At)
		if at != "" {
			at = " at " + at
		}
		return []Change{
			{fmt.Sprintf("img.draft(\"RGB\", (%d, %d))  # after Image.open%s, before the picture is converted", side, side, at), "a JPEG is then decoded at a half, a quarter or an eighth of its size, at least this large; other files stay as they are"},
			{v.pack("--resize 256"), "or store pictures at the size that training uses"},
		}
	}
	return []Change{
		{"stoker.DataLoader(stoker.ImageFolder(root, transform=...), ...)", "decodes only what a crop shows, several times as fast as PIL"},
		{v.pack("--resize 256"), "or store pictures at the size that training uses"},
	}
}

var pictured = regexp.MustCompile(`^\[\[\d+,(?:[13],(\d+),(\d+)|(\d+),(\d+),[13])\]`)

// pictureSize is the height and width of the pictures of a batch, by its first shape.
func pictureSize(shape string) (h, w int) {
	m := pictured.FindStringSubmatch(shape)
	if m == nil {
		return 0, 0
	}
	h, _ = strconv.Atoi(m[1] + m[3])
	w, _ = strconv.Atoi(m[2] + m[4])
	return h, w
}

func changeOfTransform(v *view) []Change {
	name := evidence.Short(v.Costliest().Name)
	if v.Loop.Settings.Class == evidence.OwnClass {
		return []Change{{name + " on the GPU, after the batch came", "or make the picture smaller before it: what leaves fewer pixels comes first"}, {v.pack("--resize 256"), "or the work done once, while packing"}}
	}
	if v.Costliest().Kind == evidence.Tokenize {
		return []Change{{"stoker pack corpus tokens --tokenize gpt2", "tokenise once, not in every epoch"}}
	}
	var out []Change
	later := v.afterwards()
	switch s := v.StageNamed(v.Costliest()); {
	case slices.Contains(loop.Shrinks, name) || strings.HasSuffix(strings.ToLower(name), "resize"):
		// Pictures of unequal size cannot be a batch before it: it cannot move to the device.
		out = append(out, Change{v.pack("--resize 256"), "stores pictures at about the size that training uses, so there is less to resize"})
	case later != "":
		less := "less"
		if v.Data() == loop.OfPictures {
			less = "fewer pixels"
		}
		out = append(out, Change{fmt.Sprintf("Compose([..., %s(...), %s(...), ...])", later, name), fmt.Sprintf("put %s first: %s then has %s to process (results differ slightly)", later, name, less)})
	case strings.HasPrefix(s.Name, "torchvision."):
		out = append(out, Change{name + " on the GPU, after batch.to(device)", "all pictures of a batch in one call, if one random draw for all of them is good enough"})
	default:
		return []Change{{"# " + cmp.Or(v.OfTransform(), name), "write it as whole-array NumPy or torch calls, run it on the batch on the GPU, or do beforehand whatever is the same in every epoch"}}
	}
	if v.Data() == loop.OfPictures && strings.HasPrefix(v.StageNamed(v.Costliest()).Name, "torchvision.") {
		out = append(out, Change{"stoker.DataLoader(stoker.ImageFolder(..., transform=...))", "the same transforms, compiled"})
	}
	return out
}

// filtered is a selection of the rows of a frame whose column has a value: the frame, the
// column, the value, and what follows.
var filtered = regexp.MustCompile(`([\w.]+?)(?:\.loc)?\[\s*[\w.]+\[["'](\w+)["']\]\s*==\s*((?:[^\[\]]|\[[^\[\]]*\])+)\](.*)$`)

var assignment = regexp.MustCompile(`^\w+ = `)

func changeOfPython(v *view) []Change {
	at := "__getitem__"
	if len(v.Loop.Cost.Frames) > 0 {
		at = v.Loop.Cost.Frames[0].At
	}
	p := v.Part(evidence.Python)
	if p.Blocked > p.CPU {
		out := []Change{}
		if v.waitsAside() {
			out = append(out, v.raised(v.waiting(), "waiting uses no core: more workers wait in parallel"))
		}
		return append(out, Change{"# " + at, "it waits and does not compute: remove the wait, or do it once instead of for every sample"})
	}
	if f := v.Loop.Cost.Frames; len(f) > 0 {
		if m := filtered.FindStringSubmatch(f[0].Text); m != nil {
			return []Change{{
				fmt.Sprintf("self.groups = dict(list(%s.groupby(%q)))  # once, in __init__\n%sself.groups[%s]%s  # instead of %s", m[1], m[2], assignment.FindString(f[0].Text), strings.TrimSpace(m[3]), m[4], loop.LineOnly(f[0].At)),
				"a comparison looks at every row of the table for every sample; groups are found by their key",
			}}
		}
	}
	if strings.HasPrefix(p.Name, "pandas.") || v.StageOfName("pandas.") >= 0.1*v.Sum() {
		return v.stored()
	}
	if strings.HasPrefix(p.Name, "json.") || strings.HasPrefix(p.Name, "orjson.") || strings.HasPrefix(p.Name, "yaml.") || strings.HasPrefix(p.Name, "xml") {
		return []Change{{"# " + cmp.Or(v.Hot(true), at), "parse each file once, before training, and keep the result as arrays (np.save): text is parsed again in every epoch"}}
	}
	if v.Loop.Cost.Sample.Value < 200e-6 && v.Batch >= 64 && v.Loop.Settings.Kind == "map" {
		return []Change{{
			"def __getitems__(self, indices): return self[indices]  # in the dataset: all of a batch, with array indices in __getitem__\n" + v.loader("collate_fn=torch.utils.data.default_convert"),
			fmt.Sprintf("a sample takes %s, nearly all of it calls (%s): torch hands the indices of a whole batch to __getitems__, which reads them in one NumPy call; __getitem__ must accept a list of indices", show.Seconds(v.Loop.Cost.Sample.Value), loop.LineOnly(at)),
		}}
	}
	why := "this is done for every sample: do it once for all of them beforehand and store the result, or for a whole batch in one NumPy or torch call (__getitems__)"
	if f := v.Loop.Cost.Frames; len(f) > 0 && (f[0].Loop || f[0].Text == "") {
		why = "replace loops over Python objects with one NumPy or torch call, or do the work once beforehand"
	}
	return []Change{{"# " + at, why}}
}
