//go:build cgo

package kernel

/*
#cgo CFLAGS: -O2 -fno-strict-aliasing -Wall -Wextra
#cgo LDFLAGS: -lm
#cgo noescape stk_run
#cgo nocallback stk_run
#cgo noescape stk_index_run
#cgo nocallback stk_index_run
#cgo noescape stk_strip_run
#cgo nocallback stk_strip_run
#cgo noescape stk_learn_run
#cgo nocallback stk_learn_run
#include <stdlib.h>
#include "stk.h"
*/
import "C"

import (
	"runtime"
	"time"
	"unsafe"
)

func targets() []string {
	return names[:2+int(C.stk_best_level())]
}

// engine is a lane of the C kernel; nil for the twin. Its job is in C memory and
// has no pointers: pointers to Go memory are passed as arguments, which pins them.
type engine struct {
	lane  *C.stk_lane
	job   *C.stk_job
	ops   []*Step // memory of the planner's
	owner [maxSteps]uint8
	stock bool // everything by libjpeg, for tests and comparisons
	anew  bool // Huffman tables are made for each picture, for comparisons
}

func newEngine(target string) engine {
	if target == "go" {
		return engine{}
	}
	level := rank(target) - 1
	if target == portable {
		level = -1
	}
	lane := C.stk_lane_new(C.int(level))
	if lane == nil {
		return engine{}
	}
	return engine{lane: lane, job: C.stk_lane_job(lane)}
}

func (e *engine) close() {
	C.stk_lane_free(e.lane)
	e.lane, e.job = nil, nil
}

func (e *engine) run(j *Job, h *header) error {
	if e.lane == nil {
		return ErrMemory
	}
	if err := e.plan(j, h); err != nil {
		return err
	}
	code := e.decode(j)
	if code == C.STK_ELSEWHERE {
		return e.runRest(j, h)
	}
	j.Way = WayLibjpeg
	if e.job.own != 0 {
		j.Way = WayOwn
	}
	if j.Timed {
		j.Spent = e.spent(0)
	}
	return e.failure(code)
}

// decode runs the planned job with the entry points of its JPEG, and a second time from
// its beginning if they are wrong.
func (e *engine) decode(j *Job) C.int {
	n := j.entries()
	if n == nil {
		return e.call(j.JPEG, j.Src.Pix, j.Dst, nil, 0)
	}
	code := e.call(j.JPEG, j.Src.Pix, j.Dst, n.Known, n.Spacing)
	again := code == C.STK_STALE
	if again {
		code = e.call(j.JPEG, j.Src.Pix, j.Dst, nil, n.Spacing)
	}
	r := C.stk_lane_entries(e.lane)
	n.Jumps, n.Compared, n.Extra = int(r.jumps), int(r.compared), int(r.extra)
	n.Leapt, n.Reached = int(r.leapt), int(r.reached)
	n.Found = unsafe.Slice((*Point)(unsafe.Pointer(C.stk_lane_found(e.lane))), int(r.nfound))
	if again { // of a damaged picture, they may be right up to the damage
		n.settle(code == C.STK_OK)
	}
	return code
}

func (e *engine) call(jpeg, src, dst []byte, known []Point, spacing int) C.int {
	code := C.stk_run(e.lane, (*C.uint8_t)(unsafe.SliceData(jpeg)), C.size_t(len(jpeg)),
		(*C.uint8_t)(unsafe.SliceData(src)), (*C.uint8_t)(unsafe.SliceData(dst)),
		(*C.stk_point)(unsafe.Pointer(unsafe.SliceData(known))), C.int32_t(len(known)), C.int32_t(spacing))
	runtime.KeepAlive(jpeg)
	runtime.KeepAlive(src)
	runtime.KeepAlive(dst)
	runtime.KeepAlive(known)
	return code
}

// runRest is run for a JPEG that only libjpeg would decode, if libjpeg is not built in:
// the twin decodes all of it, and the planned passes read its pixels.
func (e *engine) runRest(j *Job, h *header) error {
	j.Way = WayGo
	began := time.Now()
	p, _, err := decodeGo(j, h)
	if err != nil {
		return err
	}
	c, decode := e.job, time.Since(began)
	if p.W != int(c.w) || p.H != int(c.h) || p.C != int(c.c) {
		return FormatError("two headers contradict each other")
	}
	c.components = 0
	code := e.call(nil, p.Pix, j.Dst, nil, 0)
	if j.Timed {
		j.Spent = e.spent(decode)
	}
	return e.failure(code)
}

// spent is the times of the job that has run, before which decode passed in decoding.
func (e *engine) spent(decode time.Duration) Spent {
	c := e.job
	s := Spent{Decode: decode + time.Duration(c.decode_ns), Write: time.Duration(c.write_ns), All: decode + time.Duration(c.all_ns)}
	ops := c.op[:c.nop]
	for i := range ops {
		// Steps in one table share its time.
		first, sharing := int(ops[i].with), 0
		for k := range ops {
			if int(ops[k].with) == first {
				sharing++
			}
		}
		s.Own[e.owner[i]%Owners] += time.Duration(ops[first].ns) / time.Duration(max(1, sharing))
	}
	for i := range c.erased[:c.nerased] {
		s.Own[int(c.erased[i].owner)%Owners] += time.Duration(c.erased[i].ns)
	}
	return s
}

// failure is the error for a return code of C.
func (e *engine) failure(code C.int) error {
	switch code {
	case C.STK_OK:
		return nil
	case C.STK_MEMORY:
		return ErrMemory
	case C.STK_TRAILING:
		return TrailingError(C.GoString(C.stk_lane_msg(e.lane)))
	case C.STK_UNSUPPORTED:
		return UnsupportedError(C.GoString(C.stk_lane_msg(e.lane)))
	}
	return FormatError(C.GoString(C.stk_lane_msg(e.lane)))
}

func (e *engine) index(dst, jpeg []byte, h *header, o IndexOptions) ([]byte, Indexed, error) {
	if e.lane == nil {
		return dst, Indexed{}, ErrMemory
	}
	r := C.stk_rewrite{
		w: C.int32_t(h.W), h: C.int32_t(h.H), components: C.int32_t(h.Components),
		wish: C.int32_t(o.Segment), percent: C.int32_t(o.Growth),
	}
	code := C.stk_index_run(e.lane, (*C.uint8_t)(unsafe.SliceData(jpeg)), C.size_t(len(jpeg)), &r)
	runtime.KeepAlive(jpeg)
	if code == C.STK_ELSEWHERE {
		if _, _, err := decodeGo(&Job{JPEG: jpeg}, h); err != nil { // damage is reported before the kind
			return dst, Indexed{}, err
		}
		return dst, Indexed{}, UnsupportedError("a JPEG that is progressive, CMYK, in several scans or of unusual sampling: rewriting it with restart markers needs libjpeg-turbo, which is not built in; " +
			"install it with its headers (Debian and Ubuntu: libjpeg-dev) and build stoker again, or pack it as it is")
	}
	if err := e.failure(code); err != nil {
		return dst, Indexed{}, err
	}
	done := Indexed{Interval: int(r.restart), Kept: r.kept != 0}
	if done.Kept {
		return append(dst, jpeg...), done, nil
	}
	return append(dst, unsafe.Slice((*byte)(r.out), int(r.nout))...), done, nil
}

// points is the entry points of a JPEG, up to where it is damaged.
func (e *engine) points(jpeg []byte, spacing int) ([]Point, error) {
	if e.lane == nil {
		return nil, ErrMemory
	}
	code := C.stk_learn_run(e.lane, (*C.uint8_t)(unsafe.SliceData(jpeg)), C.size_t(len(jpeg)), C.int32_t(spacing))
	runtime.KeepAlive(jpeg)
	if code == C.STK_ELSEWHERE {
		return nil, ErrElsewhere
	}
	found := unsafe.Slice((*Point)(unsafe.Pointer(C.stk_lane_found(e.lane))), int(C.stk_lane_entries(e.lane).nfound))
	return found, e.failure(code)
}

// segments finds the n segments of a JPEG's scan.
func (e *engine) segments(jpeg []byte, n int) ([]uint32, error) {
	if e.lane == nil {
		return nil, ErrMemory
	}
	var s C.stk_strip
	code := C.stk_strip_run(e.lane, (*C.uint8_t)(unsafe.SliceData(jpeg)), C.size_t(len(jpeg)), &s)
	runtime.KeepAlive(jpeg)
	switch {
	case code == C.STK_MEMORY:
		return nil, ErrMemory
	case code != C.STK_OK || int(s.n) != n:
		return nil, ErrElsewhere
	}
	return unsafe.Slice((*uint32)(s.seg), n), nil
}

// plan folds the steps into passes and writes them where C reads them.
func (e *engine) plan(j *Job, h *header) error {
	p := planner{ops: e.ops[:0]}
	if j.JPEG != nil {
		p.decode(h, j.Gray)
	} else {
		p.raw(j.Src.W, j.Src.H, j.Src.C)
	}
	if err := p.fold(j.Steps); err != nil {
		return err
	}
	c := e.job
	c.w, c.h, c.c = C.int32_t(p.pass[0].sw), C.int32_t(p.pass[0].sh), C.int32_t(p.pass[0].cIn)
	c.components, c.stock, c.anew, c.strict = 0, flag(e.stock), flag(e.anew), flag(j.Strict)
	if j.JPEG != nil {
		c.components = C.int32_t(h.Components)
	}
	c.npass, c.timed = C.int32_t(p.n+1), flag(j.Timed)
	c.is_float, c.is_half, c.chw = flag(j.Out.Float), flag(j.Out.Halves != nil), flag(j.Out.CHW)
	c.half_type = C.int32_t(j.Out.Half)
	if j.Out.Halves != nil {
		*(*Halves)(unsafe.Pointer(&c.half)) = *j.Out.Halves
	}
	for i := range 3 {
		c.scale[i], c.bias[i] = C.float(j.Out.Scale[i]), C.float(j.Out.Bias[i])
	}
	for i := range p.n + 1 {
		copyPass(&c.pass[i], &p.pass[i])
	}
	c.nop = C.int32_t(len(p.ops))
	for i, s := range p.ops {
		e.owner[i] = s.Owner
		c.op[i] = C.stk_op{op: C.int32_t(s.Op), c: C.int32_t(s.C), x: C.int32_t(s.X), y: C.int32_t(s.Y), w: C.int32_t(s.W), h: C.int32_t(s.H), n: C.double(s.N)}
		for k, from := range s.Perm {
			c.op[i].perm[k], c.op[i].fill[k] = C.uint8_t(from), C.uint8_t(s.Fill[k])
		}
	}
	for i := range p.pass[:p.n+1] {
		if q := &p.pass[i]; q.whole != 0 && p.ops[q.whole-1].Op.warps() {
			copyWarp(&c.op[q.whole-1].warp, p.ops[q.whole-1], q.sw, q.sh)
		}
	}
	c.nerased = C.int32_t(len(j.Out.Erased))
	for i := range j.Out.Erased {
		copyErased(&c.erased[i], &j.Out.Erased[i])
	}
	clear(p.ops) // keeps no reference to the caller's steps
	e.ops = p.ops
	return nil
}

func copyErased(d *C.stk_erased, e *Erased) {
	*d = C.stk_erased{
		box:   [4]C.int32_t{C.int32_t(e.X), C.int32_t(e.Y), C.int32_t(e.W), C.int32_t(e.H)},
		noise: flag(e.Noise), owner: C.int32_t(e.Owner), key: C.uint64_t(e.Key),
	}
	for i := range e.Bias {
		d.scale[i], d.bias[i] = C.float(e.Scale[i]), C.float(e.Bias[i])
	}
}

func copyPass(d *C.stk_pass, s *pass) {
	*d = C.stk_pass{
		c_in: C.int32_t(s.cIn), c_out: C.int32_t(s.cOut),
		gray_pre: flag(s.grayPre), gray_post: C.int32_t(s.grayPost),
		bx: C.int32_t(s.box.x), by: C.int32_t(s.box.y), bw: C.int32_t(s.box.w), bh: C.int32_t(s.box.h),
		resample: flag(s.resample), filter: C.int32_t(s.filter), draft: flag(s.draft),
		rw: C.int32_t(s.rw), rh: C.int32_t(s.rh),
		pre_h: flag(s.preH), pre_v: flag(s.preV),
		wx: C.int32_t(s.win.x), wy: C.int32_t(s.win.y), ww: C.int32_t(s.win.w), wh: C.int32_t(s.win.h),
		post_h: flag(s.postH), post_v: flag(s.postV),
		whole: C.int32_t(s.whole), op: C.int32_t(s.op), nop: C.int32_t(s.nop), needs: C.int32_t(s.needs), needer: C.int32_t(s.needer),
		erase: C.int32_t(s.erase), nerase: C.int32_t(s.nerase),
		pad: flag(s.pad), mode: C.int32_t(s.mode),
		px: C.int32_t(s.out.x), py: C.int32_t(s.out.y), pw: C.int32_t(s.out.w), ph: C.int32_t(s.out.h),
	}
	for i, v := range s.fill {
		d.fill[i] = C.uint8_t(v)
	}
}

// copyWarp is for a warp of a w x h picture.
func copyWarp(d *C.stk_map, s *Step, w, h int) {
	at := s.places(w, h)
	d.near, d.exact, d.single, d.filled = flag(s.Filter == Nearest), flag(at.exact), flag(at.single), flag(s.Filled)
	for i, v := range at.whole {
		d.whole[i] = C.int64_t(v)
	}
	for i, v := range at.real {
		d.real[i] = C.double(v)
	}
	for i, v := range at.grid {
		d.grid[i] = C.float(v)
	}
	for i := range 2 {
		d.middle[i], d.half[i] = C.float(at.middle[i]), C.float(at.half[i])
	}
	for i, v := range s.Fill {
		d.fill[i] = C.uint8_t(v)
	}
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
