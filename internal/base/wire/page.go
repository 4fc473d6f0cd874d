package wire

// The control page is one shared memfd of PageBytes, made by the engine and
// mapped by both sides. All numbers are little endian, all words are aligned,
// so that each is read and written in one piece.
//
//	0      magic      uint32  "STK1"
//	4      protocol   uint32
//	8      workers    uint32  entries in use in the work table
//	64     slots      uint8[MaxSlots]    one byte per slot: 0, SlotFree or SlotDrop
//	8192   work       WorkBytes[MaxWork] what every worker of the engine is doing
//
// The client sets a slot's byte when the last array in the slot is gone, and then
// writes to the eventfd; the engine clears it when it takes the slot back. SlotFree
// gives the memory back for the next batch; SlotDrop says that the memory may still
// be used in a forked child, so it must never be written to again.
//
// One entry of the work table, written by its worker only:
//
//	0   stage    uint32  one of the Stage constants; 0: idle
//	4   loader   uint32
//	8   sample   int64   sample id
//	16  since    int64   CLOCK_MONOTONIC, nanoseconds
//	24  count    uint64  samples this worker has finished
const (
	PageMagic  = 0x314B5453 // "STK1"
	PageBytes  = 16384
	PageSlots  = 64
	MaxSlots   = 8192 - PageSlots
	PageWork   = 8192
	WorkBytes  = 32
	MaxWork    = (PageBytes - PageWork) / WorkBytes
	SlotLeased = 0
	SlotFree   = 1
	SlotDrop   = 2
)

// The stages of the work table.
const (
	StageIdle = iota
	StageRead
	StageDecode
	StagePython
)

// StageNames are the words for them in errors.
var StageNames = [...]string{"idle", "read", "decode", "python"}
