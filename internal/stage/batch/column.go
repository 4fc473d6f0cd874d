package batch

// Column is where one field of a batch is in its slot. A dense column has
// Rows*Shape elements at Off; a padded one too, with the Shape of this batch. A
// column of bytes has Rows+1 int64 offsets (bytes, relative to Data) at Off, and
// the bytes at Data. A ragged column has Rows+1 int64 offsets (steps of the first
// axis) at Off, and at Data its values; Shape is that of one step.
type Column struct {
	Name  string
	Kind  string // ragged, or the field's kind
	Off   int64
	Shape []int // of one sample, if dense
	Rows  int   // dense: number of rows, if not the batch's
	Data  int64 // for bytes and ragged columns
}
