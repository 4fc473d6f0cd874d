package batch

// Column is where one field of a batch is in its slot. A dense column is Rows*Shape
// elements from Off; a padded one likewise, Shape being that of this batch. A column
// of bytes has Rows+1 int64 offsets (bytes, relative to Data) at Off and the bytes at
// Data. A ragged column has Rows+1 int64 offsets (steps of the first axis) at Off and
// at Data its values, of which Shape is one step.
type Column struct {
	Name  string
	Kind  string // ragged; else what the field says
	Off   int64
	Shape []int // of one sample, dense
	Rows  int   // dense: how many, where they are not those of the batch
	Data  int64 // of bytes and ragged columns
}
