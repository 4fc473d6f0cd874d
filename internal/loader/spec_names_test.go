package loader

import "github.com/stoker-data/stoker/internal/spec"

// The Spec's types by short names, since nearly every test has a variable called spec.
type (
	Spec        = spec.Spec
	Dataset     = spec.Dataset
	Fetch       = spec.Fetch
	Bytes       = spec.Bytes
	Connections = spec.Connections
	Column      = spec.Column
	Window      = spec.Window
	Paths       = spec.Paths
	Field       = spec.Field
	View        = spec.View
	Pad         = spec.Pad
	Mix         = spec.Mix
	Stage       = spec.Stage
	Order       = spec.Order
	BatchSpec   = spec.Batch
	Numbers     = spec.Numbers
	Lengths     = spec.Lengths
	Deliver     = spec.Deliver
	OnBad       = spec.OnBad
	Cache       = spec.Cache
)

// The policies for bad samples.
const (
	Fail    = spec.Fail
	Skip    = spec.Skip
	Replace = spec.Replace
)

// The ways to make the batches of a mixture.
const (
	mixed  = spec.BatchesMixed
	single = spec.BatchesSingle
)
