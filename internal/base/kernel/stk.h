// The C side of package kernel: what its files share.
//
// A lane owns every byte that a job uses besides the caller's input and output. One
// call runs one job, under one setjmp: everything below it that fails (libjpeg,
// memory) calls stk_fail, which returns there.
//
// Pictures between stages are uint8, HWC, with rows without padding, followed by
// STK_SLACK readable bytes, because wide loads run past the last pixel.
#ifndef STK_H
#define STK_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// A product is rounded before it is added, as in the Go twin. Files with floats tell GCC,
// which knows no such pragma for a header; a flag of cgo's cannot say it.
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

typedef struct stk_lane stk_lane;

// STK_ELSEWHERE: a JPEG that only libjpeg, which is not built in, would decode.
// STK_TRAILING: a strict job with a complete picture, whose scan continues after its
// last block. STK_STALE: the entry points that the job was given are not this scan's, or it
// is damaged: it has to be decoded without them.
enum { STK_OK, STK_FORMAT, STK_UNSUPPORTED, STK_MEMORY, STK_ELSEWHERE, STK_TRAILING, STK_STALE };
// The filters, numbered as in Go.
enum { STK_BILINEAR, STK_NEAREST, STK_BICUBIC, STK_NEAREST_EXACT };
enum { STK_MAX_PASS = 64, STK_MAX_OP = 160, STK_MAX_ERASED = 32, STK_SLACK = 128, STK_MSG = 256 };

// The colours, numbered as in Go, and luma among them.
enum {
  STK_GRAY = 6,
  STK_INVERT,
  STK_POSTERIZE,
  STK_SOLARIZE,
  STK_BRIGHTNESS,
  STK_CONTRAST,
  STK_SATURATION,
  STK_HUE,
  STK_AUTOCONTRAST,
  STK_EQUALIZE,
  STK_PERMUTE,
  STK_SHARPNESS,
  STK_BLUR,
  STK_ERASE,
  STK_AFFINE,
  STK_PERSPECTIVE,
  STK_KEEP,
  STK_ADD,
  STK_SUM,
};

// stk_map is what a warp does: places of warp.go.
typedef struct {
  int32_t near, exact, single, filled;
  uint8_t fill[4];
  int64_t whole[6];
  double real[9];
  float grid[6], middle[2], half[2];
} stk_map;

// stk_op is one colour, a step over the whole picture, or an erased box: n is the step's
// number, c the channels that luma makes, w x h the size of a blur, or of the box at x, y.
typedef struct {
  int32_t op, c, x, y, w, h;
  double n;
  uint8_t perm[4], fill[4];
  int32_t with;                    // result: the first op of the table that it is part of, which may be itself
  int64_t ns;                      // result: of a timed job, its time; 0 if the first op has it
  stk_map warp;
} stk_op;

// stk_erased is a box of a result of floats: x, y, w, h. It becomes bias, or, with noise, bias
// plus scale times a normal number.
typedef struct {
  int32_t box[4];
  int32_t noise, owner;
  uint64_t key;
  float scale[3], bias[3];
  int64_t ns;                      // result: of a timed job, its time
} stk_erased;

// The numbers over a whole picture that a later pass needs, as in Go.
enum { STK_NEEDS_LUMA = 1, STK_NEEDS_RANGE = 2, STK_NEEDS_HISTOGRAM = 4 };

// stk_pass is one pass over the pixels: gray, box, resample, window, flips, gray,
// colours, pad, each of which is optional. A step over the whole picture takes the place of
// all stages before the second gray. The Go planner folds steps into as few passes as give
// the same pixels.
typedef struct {
  int32_t c_in, c_out;             // channels read and written
  int32_t gray_pre;                // 3 channels to 1 before the resampling
  int32_t gray_post;               // channels made from the luma after it; 0: unchanged
  int32_t bx, by, bw, bh;          // box of the source
  int32_t resample, filter;        // resamples the box to rw x rh, by STK_BILINEAR ...
  int32_t draft;                   // bilinear may begin with a JPEG decoded smaller
  int32_t rw, rh;
  int32_t pre_h, pre_v;            // the box is flipped before the resampling
  int32_t wx, wy, ww, wh;          // the part of the resampled box that is made
  int32_t post_h, post_v;          // the window is flipped
  int32_t whole;                   // 1 and the number of the job's op that reads the whole picture; or 0
  int32_t op, nop;                 // the colours: nop of the job's, from number op on
  int32_t needs, needer;           // of the rows after them, for the job's op needer: STK_NEEDS_LUMA ...
  int32_t erase, nerase;           // boxes of its result, after everything else: nerase of the job's ops, from number erase on
  int32_t pad, mode;               // the window is at px, py of pw x ph
  int32_t px, py, pw, ph;
  uint8_t fill[4];
} stk_pass;

// stk_job is filled by Go before stk_run; it has no pointers.
typedef struct {
  int32_t w, h, c;                 // the source; for a JPEG: what its header says, c as decoded
  int32_t components;              // components of a JPEG; 0: raw pixels
  int32_t stock;                   // libjpeg decodes everything, for tests and comparisons
  int32_t strict;                  // the JPEG must be undamaged to its end
  int32_t anew;                    // Huffman tables are built for each picture, for comparisons
  int32_t npass;
  int32_t is_float, is_half, chw;  // uint8 if neither float32 nor 16 bits
  int32_t own;                     // result: jpeg.c decoded the JPEG, not libjpeg
  int32_t timed;                   // the times below are wanted
  int64_t decode_ns, write_ns, all_ns;  // ns in the decoder, for writing rows, for the whole run
  float scale[3], bias[3];
  uint16_t half[3][256];           // is_half: what each byte becomes, in each channel
  int32_t half_type;               // of these, as half.h numbers them: what erased is written in
  int32_t nop;
  stk_pass pass[STK_MAX_PASS];
  stk_op op[STK_MAX_OP];
  int32_t nerased;
  stk_erased erased[STK_MAX_ERASED];
} stk_job;

// stk_point is a place in a scan where decoding can begin: before MCU mcu, at a bit, counted
// from the highest, of a byte of the scan as it is stored (stuffed bytes count). pred is the
// DC predictors of the components, of which only 16 bits matter. Go has the same layout.
typedef struct {
  uint32_t mcu, byte;
  int16_t pred[3];
  uint16_t bit;
} stk_point;

// stk_entries is what a job knows about the entry points of its scan, and what it learns.
// known is the caller's, in the order of the scan.
typedef struct {
  const stk_point *known;
  int32_t nknown;
  int32_t spacing;                 // bytes from one recorded point to the next; 0: none is recorded
  int32_t nfound;                  // result: points that were passed and not known
  int32_t jumps, compared;         // result: known points where decoding began, and that were passed
  int32_t extra;                   // result: MCUs that were read only to pass one
  int64_t leapt, reached;          // result: MCUs that were leapt over to known points; MCUs of the picture up to the end
} stk_entries;

// stk_buf is memory that only grows within a job; after it, stk_run frees what is
// unreasonably large.
typedef struct {
  uint8_t *p;
  size_t cap;
} stk_buf;

// stk_axis is one dimension of an antialiased resampling, with ATen's
// arithmetic: output i is (sum of w[i*k+t] * source[start[i]+t] + half) >> prec.
// Weights past cnt[i] are 0, and their pixels may be outside the source.
typedef struct {
  int32_t n;                       // outputs
  int32_t k;                       // taps per output, even
  int32_t prec;
  int32_t most;                    // at least the largest weight
  int32_t clamp;                   // a sum may be negative or reach 256 << prec, and is clamped
  int32_t lo, hi;                  // source positions that have a weight
  int32_t *start, *cnt, *skip;     // skip: weights dropped before the first, while it is being made
  int16_t *w;
  stk_buf b_start, b_cnt, b_w, b_tmp;
} stk_axis;

// stk_span is what an axis resamples: size pixels from at on, of in pixels. For a
// picture decoded at full size, at is 0 and size is in; in a picture decoded smaller,
// a box may begin and end between pixels.
typedef struct {
  int32_t in;
  double at, size;
} stk_span;

// stk_filter has the terms from which the weights of an axis are computed, see
// axis.c. taps is the largest number that an output can have.
typedef struct {
  int32_t in, out, taps;
  int32_t cubic;                   // else triangle
  double at, scale, support, inv;
} stk_filter;

// Weights are computed for SIDE outputs at a time: those of output x (counted from
// the first one requested) and tap j are at w[(x / SIDE * taps + j) * SIDE + x %
// SIDE].
enum { SIDE = 4 };

// stk_hplan is the horizontal half of a resampling, laid out for one target. Four
// source rows become two pair rows: dword e of pair row j has element e of row 2j
// in its lower half and of row 2j+1 in its upper half, which is the input of
// pmaddwd.
typedef struct stk_hplan stk_hplan;
typedef void stk_hfunc(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi);

struct stk_hplan {
  stk_hfunc *run;
  const stk_axis *axis;
  int32_t c, elems;                // channels; n * c
  int32_t groups, pairs;           // of table entries; of taps
  int32_t prec, clamp;             // of the axis
  int32_t *off;                    // byte offsets into a row
  uint8_t *idx;                    // shuffle tables
  uint8_t *coef;
  stk_buf b_off, b_idx, b_coef;
};

// stk_dct transforms a quad of coefficients, and sets it to zero.
typedef void stk_dct(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride);

// stk_samples is the vectorised part of JPEG decoding: see dct.h, reduced.h,
// chroma.h and jpeg_portable.h.
typedef struct {
  stk_dct *dct, *dct4, *dct2;      // to 8, 4 and 2 samples per side
  void (*h2)(const uint8_t *in, uint8_t *out, int n);
  void (*v2)(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int bias);
  void (*h2v2)(const uint8_t *near, const uint8_t *far, uint8_t *out, int n);
  // rgb makes n pixels from YCbCr, merge from planes that are red, green and blue.
  void (*rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n);
  void (*merge)(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *out, int n);
} stk_samples;

enum { STK_BLUR_REACH = 62 };  // mostPairs in Go

// stk_colours is the loops of colours, over planes of n bytes in place: see colour.h.
typedef struct {
  void (*table)(const uint8_t *in, uint8_t *out, int n, const uint8_t *t);  // in may be out
  void (*mask)(const uint8_t *in, uint8_t *out, int n, uint8_t and, uint8_t flip);
  void (*flat_luma)(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *y, int n);
  void (*blend)(uint8_t *p, const uint8_t *y, int n, float f, float rest);
  void (*hue)(uint8_t *r, uint8_t *g, uint8_t *b, int n, float turn);
  void (*sharpen)(const uint8_t *a, const uint8_t *b, const uint8_t *d, uint8_t *out, int n, int c, float f, float rest);
  // Blurring, see blur.h: r is at most STK_BLUR_REACH.
  void (*fold)(const uint16_t *const *at, const uint16_t *w, int r, int n, uint16_t *out);
  void (*settle)(const uint16_t *const *at, const uint16_t *w, int r, int n, int half, uint8_t *out);
  // normals makes n pairs of normal numbers; see noise.h.
  void (*normals)(uint32_t low, uint32_t high, float *out, float *rest, int n);
  uint64_t (*sum)(const uint8_t *p, int n);
  void (*range)(const uint8_t *p, int n, uint8_t *least, uint8_t *most);
  // weigh adds p times w to a sum, or begins it; levels writes the sum as bytes.
  void (*weigh)(float *sum, const uint8_t *p, int n, float w, int begin);
  void (*levels)(const float *sum, uint8_t *out, int n);
} stk_colours;

// stk_numbers is what a pass finds out about the picture that it makes.
typedef struct {
  int64_t pixels;
  uint64_t luma;                   // sum
  uint8_t least[3], most[3];
  uint32_t count[3][4][256];       // how often each value occurs, in four parts
} stk_numbers;

// stk_warp is a row of a warp's result; stk_warp_row makes it, and may write 32 bytes more.
typedef struct stk_warp stk_warp;
typedef void stk_warp_row(const stk_warp *w, uint8_t *out);

enum { STK_PAIRS = 16 };
#define STK_VERTICAL const uint32_t *const *pair, const uint32_t *wp, int npair, int n, int prec, int clamp

// stk_target is the code that differs between processors. All targets give the same
// bytes.
typedef struct {
  const char *name;
  // weigh computes the weights of n outputs from output i on, and returns the
  // largest; fix derives a->w from them, a->k, and everything else that depends on
  // the weights.
  double (*weigh)(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt);
  void (*fix)(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w);
  // hprep selects h->run and fills its tables.
  void (*hprep)(stk_lane *l, stk_hplan *h);
  // v makes n elements of one output row from npair pair rows; wp[p] has the weights
  // of both rows of pair p. clamp is the axis's.
  void (*v)(uint8_t *out, STK_VERTICAL);
  // v followed by planes, f32 of each plane, or f32 and f32_rgb (scale[e % 3] for
  // element e), without a row of bytes between them, for at most STK_PAIRS pair
  // rows. NULL: v, then those.
  void (*v_planes)(uint8_t *const out[3], STK_VERTICAL);
  void (*v_float_planes)(float *const out[3], const float *scale, const float *bias, STK_VERTICAL);
  void (*v_floats)(float *out, const float *scale, const float *bias, STK_VERTICAL);
  // planes splits n RGB pixels.
  void (*planes)(const uint8_t *rgb, uint8_t *r, uint8_t *g, uint8_t *b, int n);
  // f32 and f32_rgb write x*scale + bias, for one channel, and for n interleaved
  // RGB pixels.
  void (*f32)(const uint8_t *in, float *out, int n, float scale, float bias);
  void (*f32_rgb)(const uint8_t *rgb, float *out, int n, const float *scale, const float *bias);
  void (*luma)(const uint8_t *rgb, uint8_t *out, int n);
  void (*mirror)(const uint8_t *in, uint8_t *out, int n, int c);
  const stk_samples *samples;
  const stk_colours *colours;
  stk_warp_row *warp;              // see warp.h
} stk_target;

struct stk_lane {
  stk_job job;
  const stk_target *target;
  int level;                       // the target: 0 base, 1 AVX2, 2 AVX-512; -1 portable, for tests
  jmp_buf env;
  int ending;                      // the last block was read: errors are STK_TRAILING from now on
  int code;
  char msg[STK_MSG];
  stk_entries entries;             // of the running job, then its results
  stk_buf found;                   // entries.nfound points
  struct stk_libjpeg *libjpeg;     // allocated for the first picture that needs it; so are the others
  struct stk_jpeg *jpeg;
  struct stk_huff *huff;
  stk_axis ax, ay;
  stk_hplan h;
  stk_buf ring, ptrs, vw, vnp;     // pair rows; pointers to them; vertical weights and their counts
  stk_buf rows, gray, post, tmp, line, xmap;
  stk_buf pic[2];                  // pictures between passes
  stk_buf inner;                   // the picture inside a pad
  stk_buf kept, sum;               // of a sum of pictures: what it began with, and itself
  stk_buf stages, planes;          // what a row's colours are, and the row in planes
  int flat;                        // the stages of the pass are one table, the same for all channels
  int64_t emitting;                // ticks in stk_emit
  stk_numbers numbers;             // of the last pass that was asked for them
  struct stk_index *index;         // allocated for the first picture that is rewritten
};

// lane.c
stk_lane *stk_lane_new(int level);
void stk_lane_free(stk_lane *l);
stk_job *stk_lane_job(stk_lane *l);
const char *stk_lane_msg(stk_lane *l);
int stk_best_level(void);
void *stk_grow(stk_lane *l, stk_buf *b, size_t n);
void stk_release(stk_buf *b);
void stk_lane_trim(stk_lane *l);
void stk_fail(stk_lane *l, int code, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

// axis.c
void stk_axis_make(stk_lane *l, stk_axis *a, int cubic, stk_span span, int out, int lo, int n, int mirror_in, int mirror_out);
void stk_axis_pull(stk_axis *a);
double stk_axis_weigh(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt);
void stk_axis_fix(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w);
void stk_axis_bound(stk_axis *a, int lo, int hi, int negative, int64_t worst);

// jpeg.c: take reads the header and reports whether jpeg.c decodes the picture.
// region begins with its rows at y0, columns x0 to x1, of the picture at 1 / 2^shift
// of its size; rows makes the next n of them; end reads the rest, and checks that the
// scan ends there; settle passes an entry point after the last jump; done records that there
// was no error.
int stk_jpeg_take(stk_lane *l, const uint8_t *p, size_t n);
void stk_jpeg_region(stk_lane *l, int x0, int y0, int x1, int shift);
void stk_jpeg_rows(stk_lane *l, uint8_t **rows, int n);
void stk_jpeg_end(stk_lane *l);
void stk_jpeg_settle(stk_lane *l);
void stk_jpeg_done(stk_lane *l);
void stk_jpeg_free(stk_lane *l);
void stk_jpeg_each(stk_lane *l, void (*what)(stk_buf *));
void stk_huff_free(struct stk_huff *h);

// libjpeg.c, or nolibjpeg.c if libjpeg is not built in: open reads the header;
// region starts decoding so that rows come from y0 on, row_pixels wide, and column
// x0 is the pixel of each row whose number is returned; shift and end as above.
void stk_libjpeg_open(stk_lane *l, const uint8_t *p, size_t n);
int stk_libjpeg_region(stk_lane *l, int x0, int y0, int x1, int shift, int *row_pixels);
void stk_libjpeg_rows(stk_lane *l, uint8_t **rows, int n);
void stk_libjpeg_end(stk_lane *l);
void stk_libjpeg_close(stk_lane *l);
void stk_libjpeg_free(stk_lane *l);

// job.c
int stk_run(stk_lane *l, const uint8_t *jpeg, size_t njpeg, const uint8_t *src, uint8_t *dst, const stk_point *known,
            int32_t nknown, int32_t spacing);

// entry.c: learn_run reads a scan to its end, and makes no pixels. It records points as
// stk_run does, also if it fails. STK_ELSEWHERE: not of a kind that jpeg.c decodes.
int stk_learn_run(stk_lane *l, const uint8_t *jpeg, size_t n, int32_t spacing);
const stk_entries *stk_lane_entries(const stk_lane *l);
const stk_point *stk_lane_found(const stk_lane *l);

// colour.c: begin makes the stages of a pass whose input the lane's numbers describe, and
// clears the numbers; row applies them to the planes of a row of w pixels and c channels,
// which they may reorder, and returns the channels that it has then; count adds the row
// to the numbers. The fourth plane is theirs. flat is row for n interleaved bytes, of a
// lane that is flat.
void stk_colour_begin(stk_lane *l, const stk_pass *p);
int stk_colour_row(stk_lane *l, uint8_t *plane[4], int w, int c);
void stk_colour_flat(const stk_lane *l, const uint8_t *in, uint8_t *out, int n);
void stk_colour_count(stk_lane *l, int needs, uint8_t *const plane[4], int w, int c);

// base.c, avx2.c, avx512.c; for samples: jpeg_base.c, jpeg_portable.c, jpeg_avx2.c,
// jpeg_avx512.c
extern const stk_target stk_base;
extern const stk_samples stk_samples_base;
extern const stk_colours stk_colours_base;
stk_warp_row stk_warp_base;
// STK_VECTORS: the compiler has 128-bit vectors for the processor, with the lower
// half first. Without SSE2 they are the samples of the base target.
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && \
    (defined __x86_64__ || defined __ARM_NEON || defined __VSX__)
#define STK_VECTORS
extern const stk_target stk_portable;
extern const stk_samples stk_samples_portable;
#endif
void stk_base_hprep(stk_lane *l, stk_hplan *h);
#ifdef __x86_64__
extern const stk_target stk_avx2, stk_avx512;
extern const stk_samples stk_samples_avx2, stk_samples_avx512;
extern const stk_colours stk_colours_avx2, stk_colours_avx512;
stk_warp_row stk_warp_avx2;
void stk_avx2_hprep(stk_lane *l, stk_hplan *h);
double stk_avx2_weigh(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt);
void stk_avx2_fix(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w);
#endif

// index.c
typedef struct stk_index stk_index;

// stk_rewrite is the request to stk_index_run, and its result.
typedef struct {
  int32_t w, h, components;        // as the header says
  int32_t wish;                    // approximate MCUs per segment
  int32_t percent;                 // by which the file may grow, in hundredths of a percent
  int32_t restart;                 // result: the interval; 0: none
  int32_t kept;                    // result: no interval fits the budget, keep the file unchanged
  const uint8_t *out;              // result: owned by the lane, valid until its next call
  size_t nout;
} stk_rewrite;

int stk_index_run(stk_lane *l, const uint8_t *jpeg, size_t n, stk_rewrite *r);
void stk_index_free(stk_index *x);

// strip.c
//
// stk_strip is the result of stk_strip_run: where the n segments of a scan begin, in bytes
// from its beginning on. The lane owns them until its next call.
typedef struct {
  const uint32_t *seg;
  int64_t n;
} stk_strip;

// stk_strip_run finds the segments of a JPEG that has a restart interval. STK_ELSEWHERE: the
// frame is not one that frame.c accepts, or its restart markers are wrong.
int stk_strip_run(stk_lane *l, const uint8_t *jpeg, size_t n, stk_strip *s);

// encode.c, where libjpeg is built in
enum { STK_PROGRESSIVE = 1, STK_OPTIMIZE = 2, STK_SEPARATE = 4, STK_ARITHMETIC = 8 };
int stk_encode(const uint8_t *pix, int w, int h, int c, int quality, int hs, int vs, int restart,
               int flags, int space, uint8_t **out, unsigned long *nout, char *msg);
const char *stk_libjpeg_version(void);

#endif
