package score

// planted are jobs with a known mistake in them that costs little or nothing
// there, so that no verdict speaks of it. Those that cost something are planted
// by the scenarios of verdicts.
func planted() []Scenario {
	job := func(finds string, change func(*Job)) Scenario {
		return Scenario{Name: "planted: " + finds, Finds: finds, Kind: Torch, Sick: func(float64) Job {
			j := made(8, 40*ms)
			change(&j)
			return j
		}}
	}
	return []Scenario{
		job("stateful dataset under persistent workers", func(j *Job) {
			j.Script.Setup = []string{"self.seen = 0", "self.last = []"}
			j.Script.Sample = []string{"self.seen += 1", "self.last = (self.last + [i])[-8:]"}
		}),
		job("handles shared over fork", func(j *Job) {
			j.Data = Array
			j.Script.Setup = []string{`self.file = open(path, "rb")`}
			j.Script.Read = []string{
				"self.file.seek(self.first + i % self.count * 131072)",
				"x = torch.from_numpy(np.frombuffer(self.file.read(131072), np.uint8).copy())",
			}
		}),
		job("large pickled index", func(j *Job) {
			j.Script.Setup = []string{`self.index = [f"train/{k:040d}.jpg" for k in range(2_000_000)]`}
			j.Script.Sample = []string{"x = x + float(len(self.index[i]))"}
		}),
		job("tokenising per sample", func(j *Job) {
			j.Script.Imports = []string{"import tiktoken"}
			j.Script.Setup = []string{ // a vocabulary of bytes: those of models are a download
				`self.tokens = tiktoken.Encoding("bytes", pat_str=r"\S+|\s+", mergeable_ranks={bytes([b]): b for b in range(256)}, special_tokens={})`,
				`self.text = "what is read is cut into words and these into tokens " * 200`,
			}
			j.Script.Sample = []string{"x = x + float(len(self.tokens.encode(self.text)))"}
		}),
		job("padding waste", func(j *Job) {
			j.Script.Read = []string{"x = torch.arange(1, 17 + i * 997 % 1500)"}
			j.Script.Collate = []string{"return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)"}
		}),
		job("wrong order of operations", func(j *Job) {
			step := j.Script.Step
			*j = pictured(Small, 4, 2*step, nil)
			j.Script.Setup = []string{"self.transform = transforms.Compose([transforms.ToTensor(), transforms.Resize((48, 48), antialias=True)])"}
		}),
		job("set_epoch forgotten", func(j *Job) {
			j.Script.Epoch = 256
			j.Script.Sampler = "torch.utils.data.distributed.DistributedSampler(range(256), 1, 0)"
		}),
		job("pinned without non_blocking", func(j *Job) {
			*j = moved(j.Script.Step, true, `x = x.to("cuda")`)
		}),
		job("CUDA before fork", func(j *Job) {
			*j = moved(j.Script.Step, true, beside)
			j.Script.Setup = []string{`self.weights = torch.ones(10).to("cuda")`}
		}),
		job("/dev/shm too small", func(j *Job) {
			j.Shm = 32 << 20
		}),
	}
}
