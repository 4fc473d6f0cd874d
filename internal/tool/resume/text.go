package resume

import (
	"fmt"
	"io"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "undisturbed   %s from epoch %d, place %d on: %s in %s\n", show.Count(r.Steps, "step", "steps"), r.Epoch, r.Position,
		show.Count(r.Samples, "sample", "samples"), show.Count(r.Epochs, "epoch", "epochs"))
	fmt.Fprintf(w, "killed        %s with SIGKILL, resumed from the saved state; %s came again\n", show.Count(r.Kills, "time", "times"), show.Count(r.Repeated, "step", "steps"))
	if len(r.Worlds) > 0 {
		var sizes []string
		for _, n := range r.Worlds {
			sizes = append(sizes, fmt.Sprint(n))
		}
		fmt.Fprintf(w, "other worlds  %s ranks: %s compared over all of them\n", strings.Join(sizes, ", then "), show.Count(r.Places, "place", "places"))
	}
	for i := range r.Found {
		fmt.Fprintf(w, "differs       %s\n", &r.Found[i])
	}
	end := "ids and pixels are those of the undisturbed run: this stream resumes exactly"
	if len(r.Found) > 0 {
		end = "this stream does not resume exactly"
	}
	_, err := fmt.Fprintln(w, end)
	return err
}
