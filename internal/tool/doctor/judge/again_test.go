package judge

import (
	"strings"
	"testing"
)

// Only a query that skips rows gets keys instead of an index: variables of the statement
// may have the names of SQL's words.
func TestQueriesThatSkipRows(t *testing.T) {
	for text, want := range map[string]bool{
		`db.execute("SELECT body FROM reviews ORDER BY id LIMIT 1 OFFSET ?", (i,))`:            true,
		`db.execute(f"select body from reviews limit 1 offset {i}")`:                           true,
		`db.execute("SELECT body FROM reviews LIMIT 1 OFFSET %s" % i)`:                         true,
		`db.execute("SELECT body FROM reviews LIMIT 1 OFFSET " + str(i))`:                      true,
		`db.execute("SELECT body FROM reviews LIMIT ?, 1", (i,))`:                              true,
		`db.execute(f"SELECT body FROM reviews LIMIT {i},1")`:                                  true,
		`db.execute(query, (i,))  # query = "SELECT body FROM reviews LIMIT 1 OFFSET :i"`:      true,
		`db.execute("SELECT body FROM reviews WHERE begin = ?", (offset,))`:                    false,
		`db.execute("SELECT body FROM reviews WHERE begin = ? LIMIT 1", (offset % self.n, 1))`: false,
		`db.execute("SELECT body FROM reviews WHERE size < ?", (limit + 1, 2))`:                false,
	} {
		if anOffset.MatchString(text) != want {
			t.Errorf("skips rows is %v of %s", !want, text)
		}
	}
}

// The keys come in the order that the query had, so that samples keep their numbers.
func TestKeysInTheOrderOfTheQuery(t *testing.T) {
	for text, want := range map[string]string{
		`db.execute("SELECT body FROM reviews LIMIT 1 OFFSET ?", (i,))`:                          "SELECT rowid FROM reviews ORDER BY rowid\"",
		`db.execute("SELECT body FROM reviews r ORDER BY r.id LIMIT 1 OFFSET ?", (i,))`:          "SELECT id FROM reviews ORDER BY id\"",
		`db.execute("SELECT body FROM reviews ORDER BY 'stamp' DESC LIMIT 1 OFFSET ?", (i,))`:    "SELECT stamp FROM reviews ORDER BY stamp DESC\"",
		`db.execute("SELECT body FROM reviews ORDER BY descent LIMIT 1 OFFSET ?", (index + 1,))`: "SELECT descent FROM reviews ORDER BY descent\"",
	} {
		if got := byKey(text, "data.py:29").Code; !strings.Contains(got, want) {
			t.Errorf("of %s:\n%s", text, got)
		}
	}
}

// What is opened again is left open: one object if it is one file, and one for each path if
// the script has several files, whose samples would otherwise all come from the first.
func TestWhatIsOpenedAgainIsLeftOpen(t *testing.T) {
	const text = `with h5py.File(self.files[index // len(self)], "r") as part:`
	one := openOnce(again{name: "h5py.File", text: `h5py.File(self.path, "r")`, targets: 1}, "data.py:31").Code
	if !strings.Contains(one, `if self.file is None: self.file = h5py.File(self.path, "r")`) {
		t.Error(one)
	}
	several := openOnce(again{name: "h5py.File", text: text, targets: 2}, "data.py:31").Code
	want := `if self.files[index // len(self)] not in self.opened: self.opened[self.files[index // len(self)]] = h5py.File(self.files[index // len(self)], "r")`
	if !strings.Contains(several, want) {
		t.Error(several)
	}
	if unknown := openOnce(again{name: "h5py.File", targets: 4}, "data.py:31").Code; !strings.Contains(unknown, "self.opened[path] = h5py.File(path)") {
		t.Error(unknown)
	}
}
