//go:build !cgo

package kernel

// Without a C compiler the twin is the engine.

func targets() []string { return []string{"go"} }

type engine struct{}

func newEngine(string) engine { return engine{} }

func (engine) close() {}

func (engine) run(j *Job, h *header) error { return runGo(j, h) }

func (engine) segments([]byte, int) ([]uint32, error) { return nil, ErrElsewhere } // not called: the twin finds them

func (engine) points(jpeg []byte, spacing int) ([]Point, error) { return pointsGo(jpeg, spacing) }

func (engine) index(dst, _ []byte, _ *header, _ IndexOptions) ([]byte, Indexed, error) {
	return dst, Indexed{}, UnsupportedError("the kernel without C does not rewrite JPEGs")
}
