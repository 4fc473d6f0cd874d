package stats

// The page is how a process publishes its statistics: one memfd named stoker-stats
// (/proc/PID/fd shows it as "/memfd:stoker-stats (deleted)"), mapped by its writer,
// and mapped read-only by any reader of the same user. An engine and its client
// have one each; both write this layout, and python's _page.py repeats it. Golden
// pages in testdata/stats keep the two equal.
//
// Everything is a word: an int64, little endian, at a multiple of eight bytes, read
// and written atomically. Times are nanoseconds of CLOCK_MONOTONIC, durations
// nanoseconds, sizes bytes. Counters only grow. Unknown and unused words are 0.
//
// The header says where each table begins, how many entries it has and how long an
// entry is: a later version may append words to an entry and tables to the page,
// and never moves or renames a word. So a reader of any version uses the lengths
// that it finds, reads the words that it knows, and treats words that an older page
// lacks as 0. Version counts additions; any other change would change Magic.
//
//	header
//	 0 magic      "STKSTAT1"
//	 1 version
//	 2 size       of the page
//	 3 header     its bytes
//	 4 pid        in the writer's own namespace
//	 5 role       1 engine, 2 client
//	 6 started    when the page was made
//	 7 updated    when its writer last wrote this: an engine once a second, a client with every batch
//	 8 workers    where the table begins; 9 its entries, 10 the bytes of one
//	11 loaders    where; 12 entries, 13 bytes
//	14 stages     where, from the beginning of a loader's entry; 15 entries, 16 bytes
//	17 buckets    where, from the beginning of a stage's entry; 18 how many
//	19 spans      where; 20 entries, 21 bytes
//	22 written    spans ever written: span n is in entry n modulo entries
//	23 unseen     loaders that found no free entry, and are not here
//	24 cpu        of the whole process, by the kernel, at "updated"
//
// A worker is a lane or a reader. Only the worker writes its entry, or the
// goroutine that has the lock under which the worker sleeps:
//
//	 0 seq
//	 1 kind       0 free, 1 lane, 2 reader
//	 2 state      0 idle, 1 busy, 2 blocked on input, 3 blocked on output
//	 3 since      when that state began: busy to idle lack what has gone by since then
//	 4 begun      when the worker began
//	 5 busy
//	 6 input      blocked on it
//	 7 output     blocked on it
//	 8 idle       there was nothing to do for anybody
//	 9 items      samples
//	10 loader     of the last item
//
// A loader:
//
//	 0 seq        guards words 1 to 15, and kind and name of its stages
//	 1 state      0 free, 1 open, 2 closed
//	 2 id         the engine's number of it, in both pages
//	 3 opened     when
//	 4 lanes      that it may use
//	 5 stages     in use
//	16 seq        guards words 17 to 31
//	17 updated    when these were
//	18 epoch      of the last batch delivered
//	19 step       of that batch
//	20 samples    delivered
//	21 batches    delivered
//	22 bad        samples skipped or replaced
//	23 ready      batches made and not delivered
//	24 slots      batches in memory
//	25 leased     of these, held by the user
//	26 memory     bytes of batch memory
//	27 passes     that gave a batch
//	28 first      from asking for the last pass's first batch to having it; 0: it was ready
//	29 firsts     that, summed over all passes
//
//	32 own        JPEGs decoded by stoker's own decoder; since version 2
//	33 libjpeg    by libjpeg-turbo; since version 2
//	34 go         by Go's standard library; since version 2
//
// A stage:
//
//	 0 kind       1 read, 2 decode, 3 transform, 4 batch, 5 deliver, 6 wait, 7 plan, 8 python,
//	              9 device (since version 3)
//	 1 busy       working
//	 2 input      blocked on what comes before it
//	 3 output     blocked on what comes after it
//	 4 cpu        of the threads, for cpuitems items
//	 5 cpuitems   it was measured for these only: cpu*items/cpuitems is all of it
//	 6 items
//	 7 bytes
//	 8 queue      waiting in front of it when a batch was last delivered
//	 9 queued     that, summed over all batches
//	10 queues     how many batches that is
//	11 timed      items that busy and the buckets were measured for; 0: all of them
//	12 waited     for it to end, by what uses what it makes; since version 3
//	16 name       64 bytes, UTF-8, padded with 0
//	24 buckets    items by what one took, see Bucket
//
// decode is a sample's whole way through a lane; transforms are parts of it. python is
// the user's code in workers, of loaders that have them (busy: making samples, input:
// a worker had nothing to make). The
// stages of an engine: plan (busy: choosing the samples of a batch, locating them
// and beginning the batch; output: enough batches are open), read, decode,
// transforms, batch (closing one), deliver (busy: delivering and sending a batch;
// input: there is no batch to send; output: the consumer does not ask for one),
// wait (busy: the consumer has asked and waits; output: it is working). Those of a
// client: wait (busy: making arrays of a batch; input: the engine has not answered;
// output: the training loop is working; queue: batches on the device, or on their way
// there, if there is one) and, once it has used a device, three of kind device, by name:
// copies, transforms and decoding (busy: by the device's own events; waited: the loop's
// stream waited until it ended; queue: given to the device and not ended; buckets: those
// of a mean of the few items that ended together).
//
// A span is one batch, or a bundle of them. Each page has those that it knows, and
// (loader, epoch, step) joins them:
//
//	 0 seq
//	 1 loader
//	 2 epoch
//	 3 step       the first
//	 4 steps      how many
//	 5 begun      its making began
//	 6 filled     its last sample was in, and it was closed
//	 7 delivered  it was sent
//	 8 asked      engine: its request came; client: the loop asked for it
//	 9 got        the loop had it
//	10 rows       of one step
//
// Rows whose words must agree have a seq word: odd while they are written, and
// another even number afterwards. A reader reads seq, the row, and seq again, and
// tries again unless it saw the same even number twice. A writer that dies in
// between leaves it odd: the row is then left out. Counters of stages, and words 32
// to 34 of a loader, have many writers and no seq: each word is correct by itself,
// and two of them differ at most by the samples in work, those of bunches of a
// batch that is being filled, and 16 samples per lane that the lane has not added
// yet.
const (
	Magic   = 0x31544154534b5453 // "STKSTAT1"
	Version = 3
	Name    = "stoker-stats"

	RoleEngine = 1
	RoleClient = 2

	word = 8

	headerWords = 32
	workerWords = 16
	loaderWords = 64 // without its stages
	stageWords  = 24 + bucketWords
	bucketWords = 120
	spanWords   = 16

	mostWorkers = 320
	mostLoaders = 16
	mostStages  = 24
	mostSpans   = 256
	nameWords   = 8
)

const (
	hMagic = iota
	hVersion
	hSize
	hHeader
	hPID
	hRole
	hStarted
	hUpdated
	hWorkers
	hWorkerCount
	hWorkerBytes
	hLoaders
	hLoaderCount
	hLoaderBytes
	hStages
	hStageCount
	hStageBytes
	hBuckets
	hBucketCount
	hSpans
	hSpanCount
	hSpanBytes
	hWritten
	hUnseen
	hCPU
)

const (
	wSeq = iota
	wKind
	wState
	wSince
	wBegun
	wBusy
	wInput
	wOutput
	wIdle
	wItems
	wLoader
	wEnd
)

const (
	lSeq = iota
	lState
	lID
	lOpened
	lLanes
	lStages
	lSeq2 = iota + 10
	lUpdated
	lEpoch
	lStep
	lSamples
	lBatches
	lBad
	lReady
	lSlots
	lLeased
	lMemory
	lPasses
	lFirst
	lFirsts
	lEnd          // of version 1
	lJPEG    = 32 // by Ways
	lJPEGEnd = lJPEG + WayCount
)

const (
	sKind = iota
	sBusy
	sInput
	sOutput
	sCPU
	sCPUItems
	sItems
	sBytes
	sQueue
	sQueued
	sQueues
	sTimed
	sWaited
	sName    = 16
	sBuckets = sName + nameWords
)

const (
	pSeq = iota
	pLoader
	pEpoch
	pStep
	pSteps
	pBegun
	pFilled
	pDelivered
	pAsked
	pGot
	pRows
	pEnd
)

// The states of a worker.
const (
	Idle = iota
	Busy
	Input  // blocked on what comes before
	Output // blocked on what comes after
)

// The kinds of workers.
const (
	LaneWorker = iota + 1
	ReaderWorker
)

// The kinds of stages.
const (
	KindRead = iota + 1
	KindDecode
	KindTransform
	KindBatch
	KindDeliver
	KindWait
	KindPlan
	KindPython
	KindDevice
)
