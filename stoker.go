// Package stoker loads training data: it reads images where they lie, decodes
// and transforms them, and hands out finished batches in an exactly
// reproducible order. This is the Go API; Python users have the package of the
// same name, and the command stoker measures and inspects.
//
// [Open] takes a [Spec] and returns a [Loader]; [Loader.Batches] walks an epoch.
package stoker

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version is the version of this module, "0.1.0".
func Version() string { return strings.TrimSpace(version) }
