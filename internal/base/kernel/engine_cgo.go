//go:build cgo

package kernel

/*
#cgo CFLAGS: -O2 -fno-strict-aliasing -Wall -Wextra
#cgo LDFLAGS: -lm
#cgo noescape stk_run
#cgo nocallback stk_run
#cgo noescape stk_index_run
#cgo nocallback stk_index_run
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
	code := e.call(j.JPEG, j.Src.Pix, j.Dst)
	if code == C.STK_ELSEWHERE {
		return e.runRest(j, h)
	}
	j.Way = WayLibjpeg
	if e.job.own != 0 {
		j.Way = WayOwn
	}
	if j.Timed {
		j.Spent = Spent{time.Duration(e.job.decode_ns), time.Duration(e.job.write_ns), time.Duration(e.job.all_ns)}
	}
	return e.failure(code)
}

func (e *engine) call(jpeg, src, dst []byte) C.int {
	code := C.stk_run(e.lane, (*C.uint8_t)(unsafe.SliceData(jpeg)), C.size_t(len(jpeg)),
		(*C.uint8_t)(unsafe.SliceData(src)), (*C.uint8_t)(unsafe.SliceData(dst)))
	runtime.KeepAlive(jpeg)
	runtime.KeepAlive(src)
	runtime.KeepAlive(dst)
	return code
}

// runRest is run for a JPEG that only libjpeg would take, where that is not built
// in: the twin decodes all of it, and the passes, which are planned, read pixels.
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
	code := e.call(nil, p.Pix, j.Dst)
	if j.Timed {
		j.Spent = Spent{decode, time.Duration(c.write_ns), decode + time.Duration(c.all_ns)}
	}
	return e.failure(code)
}

// failure is the error of a call that ended so.
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
		if _, _, err := decodeGo(&Job{JPEG: jpeg}, h); err != nil { // damaged files are called damaged
			return dst, Indexed{}, err
		}
		return dst, Indexed{}, UnsupportedError("a JPEG that is progressive, CMYK, in several scans or of unusual sampling: rewriting it with restart markers needs libjpeg-turbo, which is not built in; " +
			"install its headers and static library (Debian's libjpeg62-turbo-dev) and build stoker again, or pack it as it is")
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

// plan folds the steps into passes and writes them where C reads them.
func (e *engine) plan(j *Job, h *header) error {
	var p planner
	if j.JPEG != nil {
		p.jpeg(h, j.Gray)
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
	c.is_float, c.chw = flag(j.Out.Float), flag(j.Out.CHW)
	for i := range 3 {
		c.scale[i], c.bias[i] = C.float(j.Out.Scale[i]), C.float(j.Out.Bias[i])
	}
	for i := range p.n + 1 {
		copyPass(&c.pass[i], &p.pass[i])
	}
	return nil
}

func copyPass(d *C.stk_pass, s *pass) {
	*d = C.stk_pass{
		c_in: C.int32_t(s.cIn), c_out: C.int32_t(s.cOut),
		gray_pre: flag(s.grayPre), gray_post: C.int32_t(s.grayPost),
		bx: C.int32_t(s.box.x), by: C.int32_t(s.box.y), bw: C.int32_t(s.box.w), bh: C.int32_t(s.box.h),
		resample: flag(s.resample), nearest: flag(s.filter == Nearest), draft: flag(s.draft),
		rw: C.int32_t(s.rw), rh: C.int32_t(s.rh),
		pre_h: flag(s.preH), pre_v: flag(s.preV),
		wx: C.int32_t(s.win.x), wy: C.int32_t(s.win.y), ww: C.int32_t(s.win.w), wh: C.int32_t(s.win.h),
		post_h: flag(s.postH), post_v: flag(s.postV),
		pad: flag(s.pad), mode: C.int32_t(s.mode),
		px: C.int32_t(s.out.x), py: C.int32_t(s.out.y), pw: C.int32_t(s.out.w), ph: C.int32_t(s.out.h),
	}
	for i, v := range s.fill {
		d.fill[i] = C.uint8_t(v)
	}
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
