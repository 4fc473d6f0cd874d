package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// insufficient says what is missing for a verdict.
func (v *view) insufficient(missing []string) Verdict {
	if len(v.Parts) > 0 && v.Costliest().Kind != evidence.Read { // then it is not what lacks
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == aRate.name })
	}
	out := Verdict{Name: Insufficient, Loader: v.Loop.Settings.Where, Rank: v.Loop.Rank, Missing: missing}
	r := v.Evidence.Run
	switch {
	case v.Evidence.Subject.Kind == evidence.OfMachine:
		out.Sentence = "Nothing was run: what limits a training loop shows while it runs."
		out.Changes = []Change{{"stoker doctor -- python train.py", "watches it; the script runs unchanged"}}
		out.Missing = nil
	case v.Evidence.Subject.Kind == evidence.OfProcess && len(v.Evidence.Loops) == 0 && r.Denied != "":
		out.Sentence = fmt.Sprintf("The process is %s's, and we may not look into it: whether it has a loader of stoker is not known.", r.Denied)
		out.Missing = []string{fmt.Sprintf("permission to read /proc/%d/fd", v.Evidence.Subject.PID)}
		out.Changes = []Change{{fmt.Sprintf("sudo stoker doctor --attach %d", v.Evidence.Subject.PID), "or as " + r.Denied + ": statistics are for the user whose loader it is"}}
		out.Lines = v.ProcLines()
	case v.Evidence.Subject.Kind == evidence.OfProcess && len(v.Evidence.Loops) == 0:
		out.Sentence = "From outside, a process does not say where it waits for data."
		out.Missing = []string{"the statistics of a loader of stoker"}
		out.Changes = []Change{{"stoker doctor -- python train.py", "watches a run from its start"}}
		out.Lines = v.ProcLines()
	case r.Hooked == 0 && len(v.Evidence.Loops) == 0:
		out.Sentence = "No Python process loaded the hook, so nothing is known of its loaders."
		out.Missing = []string{"a Python process with the hook"}
		out.Changes = v.unhooked()
		out.Lines = v.ProcLines()
	case len(v.Evidence.Loops) == 0:
		out.Sentence = "No DataLoader of torch was iterated" + ended(r) + "."
		out.Missing = []string{"a loop over a torch.utils.data.DataLoader"}
		if _, torch := r.Libraries["torch"]; !torch && !strings.HasPrefix(r.Ended, "killed") { // one that was killed may have got further than its last line
			out.Sentence = "torch was not imported, and no DataLoader was iterated" + ended(r) + "."
		}
		out.Lines = v.ProcLines()
	case v.Loop.Batches.Value < 1:
		out.Sentence = "No batch came" + ended(r) + "."
		out.Missing = []string{"a batch"}
		out.Lines = v.ProcLines()
	case !v.SeenEnough():
		came := show.Count(int64(v.Loop.Batches.Value), "batch", "batches")
		over := ""
		if v.Loop.Seconds.Known() {
			over = ", in " + show.Took(v.Loop.Seconds.Value)
		}
		out.Sentence = fmt.Sprintf("Only %s came%s%s: too few to tell waiting from starting.", came, ended(r), over)
		if v.OneBatch() {
			out.Sentence = fmt.Sprintf("Only %s came%s, each the only one of its epoch: too few to say how long epochs take to start.", came, ended(r))
		}
		out.Missing = []string{"more batches"}
		out.Lines = v.StartLines()
	case v.Beyond() && v.Costliest().Kind == evidence.Read:
		out.Sentence = fmt.Sprintf("Reads take %s of a sample's time; whether they begin late or go on slowly was not measured.", show.Percent(v.Part(evidence.Read).Seconds()/v.Sum()))
		out.DataBound = true
		out.Lines = append(v.StorageLines(), v.PartLines()...)
	case !v.Alone():
		out.Sentence = fmt.Sprintf("The loop waits, but other processes use %s of this machine: what it would cost on an idle machine is not known.", show.Cores(math.Round(10*r.Others.Value)/10))
		out.Missing = append([]string{"a machine that has its cores for this"}, missing...)
		out.DataBound = v.Bound()
		out.Lines = append(v.LoopLines(), v.PartLines()...)
	default:
		out.Sentence = "The loop waits for data; the measurements do not show for which part."
		out.DataBound = v.Bound()
		out.Lines = append(v.LoopLines(), v.PartLines()...)
	}
	return out
}

func ended(r evidence.Run) string {
	if r.Ended != "" {
		return " before the script ended (" + r.Ended + ")"
	}
	return ""
}

// unhooked is what to try where the hook did not load.
func (v *view) unhooked() []Change {
	for _, word := range v.Evidence.Subject.Command {
		switch word {
		case "-I", "-S", "-IS", "-SI":
			return []Change{{"python train.py", "without " + word + ", which keeps Python from loading the hook"}}
		case "-E":
			return []Change{{"python train.py", "without -E, which hides PYTHONPATH from Python"}}
		}
	}
	return []Change{{"stoker doctor -- python train.py", "the command has to start Python; -I, -E and -S keep the hook out, and so does a wrapper that clears PYTHONPATH"}}
}
