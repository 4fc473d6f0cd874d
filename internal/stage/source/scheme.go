package source

// Scheme is a kind of storage and how its source is made. Whoever opens datasets has
// a list of these, and knows no source besides.
type Scheme struct {
	// Name is what names of the scheme begin with, before "://"; "file" has the names
	// without a scheme too.
	Name string
	// Open makes the source. It is called at most once, for the first name of the
	// scheme, and must not wait for anything. A source that is an io.Closer is closed
	// with its Mux.
	Open func(Access) (Source, error)
	// Parts is how many parts of a name, after the "://", decide how it is reached: one
	// (0), such as a bucket, a container or a host, or more.
	Parts int
}

// Local is the scheme of local files.
func Local() Scheme {
	return Scheme{Name: "file", Open: func(Access) (Source, error) { return NewFile(), nil }}
}
