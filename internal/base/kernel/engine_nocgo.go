//go:build !cgo

package kernel

// Without a C compiler the twin is the engine.

func targets() []string { return []string{"go"} }

type engine struct{}

func newEngine(string) engine { return engine{} }

func (engine) close() {}

func (engine) run(j *Job, h *header) error { return runGo(j, h) }
