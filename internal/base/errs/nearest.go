package errs

import "strings"

// Nearest is the candidate that word was most likely meant to be, or "" if none is
// near: at most a third of its letters, and at least two, may be wrong, missing,
// extra or swapped with their neighbour. Wrong case counts half. On a tie the
// earlier candidate wins.
func Nearest(word string, candidates []string) string {
	w := []rune(word)
	limit := 2 * max(2, len(w)/3) // halves of a letter
	best, found := limit+1, ""
	var rows [3][]int
	for _, c := range candidates {
		r := []rune(c)
		if c == "" || 2*abs(len(r)-len(w)) >= best {
			continue
		}
		if d := distance(w, r, &rows); d < best && d < 2*max(len(w), len(r)) {
			best, found = d, c
		}
	}
	return found
}

func abs(n int) int { return max(n, -n) }

// distance is the number of edits from a to b in halves of a letter (optimal string
// alignment). rows is memory to reuse.
func distance(a, b []rune, rows *[3][]int) int {
	for i := range rows {
		rows[i] = append(rows[i][:0], make([]int, len(b)+1)...)
	}
	before, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = 2 * j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = 2 * i
		for j := 1; j <= len(b); j++ {
			row[j] = min(last[j]+2, row[j-1]+2, last[j-1]+swap(a[i-1], b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+2)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func swap(a, b rune) int {
	switch {
	case a == b:
		return 0
	case strings.EqualFold(string(a), string(b)):
		return 1
	}
	return 2
}
