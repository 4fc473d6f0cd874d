//go:build stoker_libjpeg

// Pictures that jpeg.c does not take: progressive ones, of four components, of odd
// sampling, of several scans. Regions of them, over libjpeg-turbo 2.1.
//
// The decompressor lives as long as its lane. What libjpeg allocates for a
// picture comes from an arena that is emptied, not freed, after it; also its
// tables, so that a picture without tables never decodes with those of the
// picture before.
//
// libjpeg calls damage a warning and goes on with grey; here the first warning
// ends the job. Damage in rows that are not read stays unseen.
#include "stk.h"

#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "libjpeg.h"

enum { ARENA_KEEP = 16 << 20, MAX_SCANS = 300 };

struct stk_arena {
  stk_arena *next;
  size_t cap, used;
};

static void on_error(j_common_ptr c) {
  char msg[JMSG_LENGTH_MAX];
  c->err->format_message(c, msg);
  int code = STK_FORMAT;
  switch (c->err->msg_code) {
  case JERR_OUT_OF_MEMORY: code = STK_MEMORY; break;
  case JERR_SOF_UNSUPPORTED:
  case JERR_BAD_PRECISION:
  case JERR_ARITH_NOTIMPL:
  case JERR_CONVERSION_NOTIMPL:
  case JERR_CCIR601_NOTIMPL:
  case JERR_FRACT_SAMPLE_NOTIMPL:
  case JERR_NOT_COMPILED: code = STK_UNSUPPORTED; break;
  }
  stk_fail(stk_libjpeg_of(c)->l, code, "%s", msg);
}

static void on_message(j_common_ptr c, int level) {
  if (level < 0) {
    char msg[JMSG_LENGTH_MAX];
    c->err->format_message(c, msg);
    stk_fail(stk_libjpeg_of(c)->l, STK_FORMAT, "%s", msg);
  }
}

static void on_output(j_common_ptr c) { (void)c; }

// A progressive file may contain any number of scans of a few bytes each, and each of
// them costs a pass over the whole picture.
static void on_progress(j_common_ptr c) {
  stk_libjpeg *j = stk_libjpeg_of(c);
  int scans = j->c.input_scan_number;
  double work = (double)scans * j->c.image_width * j->c.image_height;
  if (scans > MAX_SCANS || (scans > 20 && work > 4e9))
    stk_fail(j->l, STK_FORMAT, "%d scans and more for %u x %u pixels", scans, j->c.image_width, j->c.image_height);
}

static void src_nothing(j_decompress_ptr c) { (void)c; }

static boolean src_end(j_decompress_ptr c) {
  stk_fail(stk_libjpeg_of(c)->l, STK_FORMAT, "the data ends inside the picture");
  return FALSE;
}

static void src_skip(j_decompress_ptr c, long n) {
  if (n <= 0) return;
  if ((size_t)n > c->src->bytes_in_buffer) src_end(c);
  c->src->next_input_byte += n;
  c->src->bytes_in_buffer -= n;
}

static void *take(stk_libjpeg *j, size_t n) {
  n = (n + 63) & ~(size_t)63;
  stk_arena *b = j->arena;
  if (!b || b->cap - b->used < n) {
    size_t cap = n + 64 > (1u << 19) ? n + 64 : (1u << 19);
    void *p = NULL;
    if (n > (size_t)1 << 40 || posix_memalign(&p, 64, cap + STK_SLACK))
      stk_fail(j->l, STK_MEMORY, "no memory for %zu bytes of a JPEG", n);
    stk_arena *nb = p;
    nb->next = b;
    nb->cap = cap;
    nb->used = 64;
    j->arena = b = nb;
  }
  void *p = (uint8_t *)b + b->used;
  b->used += n;
  return p;
}

static void *alloc_any(j_common_ptr c, int pool, size_t n) {
  (void)pool;
  return take(stk_libjpeg_of(c), n);
}

static JSAMPARRAY alloc_sarray(j_common_ptr c, int pool, JDIMENSION width, JDIMENSION rows) {
  (void)pool;
  size_t stride = ((size_t)width + 63) & ~(size_t)63;
  JSAMPARRAY a = take(stk_libjpeg_of(c), rows * sizeof *a);
  JSAMPLE *p = take(stk_libjpeg_of(c), rows * stride + STK_SLACK);
  for (JDIMENSION i = 0; i < rows; i++) a[i] = p + i * stride;
  return a;
}

static JBLOCKARRAY alloc_barray(j_common_ptr c, int pool, JDIMENSION width, JDIMENSION rows) {
  (void)pool;
  JBLOCKARRAY a = take(stk_libjpeg_of(c), rows * sizeof *a);
  JBLOCK *p = take(stk_libjpeg_of(c), (size_t)rows * width * sizeof *p);
  for (JDIMENSION i = 0; i < rows; i++) a[i] = p + (size_t)i * width;
  return a;
}

// Most memory that libjpeg frees is freed when the arena is emptied; only its virtual
// arrays (progressive files) are its own.
static void free_pool(j_common_ptr c, int pool) { stk_libjpeg_of(c)->free_pool(c, pool); }

// reset empties the arena into one block that would have held everything.
static void reset(stk_libjpeg *j) {
  stk_arena *b = j->arena;
  if (!b) return;
  if (!b->next && b->cap <= ARENA_KEEP) {
    b->used = 64;
    return;
  }
  size_t all = 0;
  while (b) {
    stk_arena *next = b->next;
    all += b->cap;
    free(b);
    b = next;
  }
  j->arena = NULL;
  void *p = NULL;
  if (all > ARENA_KEEP || posix_memalign(&p, 64, all + STK_SLACK)) return;
  b = p;
  b->next = NULL;
  b->cap = all;
  b->used = 64;
  j->arena = b;
}

static stk_libjpeg *create(stk_lane *l) {
  stk_libjpeg *j = calloc(1, sizeof *j);
  if (!j) stk_fail(l, STK_MEMORY, "no memory for a JPEG decoder");
  j->l = l;
  j->c.err = jpeg_std_error(&j->err);
  j->err.error_exit = on_error;
  j->err.emit_message = on_message;
  j->err.output_message = on_output;
  l->libjpeg = j;
  jpeg_create_decompress(&j->c);
  struct jpeg_memory_mgr *m = j->c.mem;
  j->free_pool = m->free_pool;
  m->alloc_small = alloc_any;
  m->alloc_large = alloc_any;
  m->alloc_sarray = alloc_sarray;
  m->alloc_barray = alloc_barray;
  m->free_pool = free_pool;
  j->src.init_source = src_nothing;
  j->src.fill_input_buffer = src_end;
  j->src.skip_input_data = src_skip;
  j->src.resync_to_restart = jpeg_resync_to_restart;
  j->src.term_source = src_nothing;
  j->c.src = &j->src;
  j->progress.progress_monitor = on_progress;
  return j;
}

void stk_libjpeg_open(stk_lane *l, const uint8_t *p, size_t n) {
  stk_libjpeg *j = l->libjpeg ? l->libjpeg : create(l);
  struct jpeg_decompress_struct *c = &j->c;
  j->busy = 1;
  for (int i = 0; i < NUM_QUANT_TBLS; i++) c->quant_tbl_ptrs[i] = NULL;
  for (int i = 0; i < NUM_HUFF_TBLS; i++) c->dc_huff_tbl_ptrs[i] = c->ac_huff_tbl_ptrs[i] = NULL;
  c->progress = &j->progress;
  j->src.next_input_byte = p;
  j->src.bytes_in_buffer = n;
  jpeg_read_header(c, TRUE);
  if ((int64_t)c->image_width != l->job.w || (int64_t)c->image_height != l->job.h ||
      c->num_components != l->job.components)
    stk_fail(l, STK_FORMAT, "two headers contradict each other");
  c->dct_method = JDCT_ISLOW;
  c->do_fancy_upsampling = TRUE;
  if (c->num_components == 1)
    c->out_color_space = JCS_GRAYSCALE;
  else if (c->num_components == 3)
    c->out_color_space = JCS_RGB;
  else
    c->out_color_space = JCS_CMYK;
}

// stk_libjpeg_smooths reports whether libjpeg would guess missing coefficients of an
// unfinished progressive file, which it does differently at a region's edge.
int stk_libjpeg_smooths(const struct jpeg_decompress_struct *c) {
  if (!c->progressive_mode || !c->coef_bits) return 0;
  for (int i = 0; i < c->num_components; i++)
    for (int k = 1; k < 10; k++)
      if (c->coef_bits[i][k] != 0) return 1;
  return 0;
}

// stk_libjpeg_complete makes sure that every component was in a scan, and reads all
// scans if there are several. libjpeg returns grey for a component that was in none.
void stk_libjpeg_complete(stk_lane *l, const struct jpeg_decompress_struct *c) {
  for (int i = 0; i < c->num_components; i++)
    if (!c->comp_info[i].quant_table)  // of its first scan
      stk_fail(l, STK_FORMAT, "the JPEG ends before all of its scans: component %d of %d has none", i + 1, c->num_components);
}

// stk_libjpeg_region starts decoding the box and returns the index, in a row, of the
// pixel of column x0. Fancy upsampling reads one more chroma sample on each side, so
// more is decoded than the box, and the caller trims it.
int stk_libjpeg_region(stk_lane *l, int x0, int y0, int x1, int shift, int *row_pixels) {
  struct jpeg_decompress_struct *c = &l->libjpeg->c;
  c->scale_denom = 1u << shift;  // of scale_num 1
  jpeg_start_decompress(c);
  stk_libjpeg_complete(l, c);
  int left = 0, width = (int)c->output_width;
  int whole = shift > 0 || stk_libjpeg_smooths(c);  // a region of a smaller picture is cut out of all of it
  // A scan of one component goes block by block, whatever its sampling factor is.
  int mcu = c->num_components == 1 ? DCTSIZE : c->max_h_samp_factor * DCTSIZE;
  if (!whole) {
    int pad = c->max_h_samp_factor > 1 ? 2 : 0;
    int a = x0 - pad < 0 ? 0 : (x0 - pad) / mcu * mcu;
    int b = (x1 + pad + mcu - 1) / mcu * mcu;
    if (b > width) b = width;
    if (b - a < 2 * mcu) a = a < 2 * mcu ? 0 : a - 2 * mcu;
    if (a > 0 || b < width) {
      JDIMENSION xo = a, w = b - a;
      jpeg_crop_scanline(c, &xo, &w);
      left = (int)xo;
    }
  }
  *row_pixels = (int)c->output_width;
  int skip = 0;
  if (!whole && y0 > 0) {
    int mh = c->max_v_samp_factor * DCTSIZE;
    skip = (y0 - (c->max_v_samp_factor > 1 ? 2 : 0)) / mh * mh;
  }
  if (skip > 0) jpeg_skip_scanlines(c, skip);
  uint8_t *waste[1] = {stk_grow(l, &l->line, (size_t)c->output_width * c->output_components)};
  while ((int)c->output_scanline < y0) jpeg_read_scanlines(c, waste, 1);
  return x0 - left;
}

// Pillow's CMYK to RGB, for inverted ink, which Pillow assumes of every CMYK JPEG.
static void cmyk_row(const uint8_t *in, uint8_t *out, int n) {
  for (int i = 0; i < n; i++, in += 4, out += 3) {
    int k = in[3];  // 255 minus ink
    for (int c = 0; c < 3; c++) {
      int t = (255 - in[c]) * k + 128;
      out[c] = (uint8_t)(k - (((t >> 8) + t) >> 8));
    }
  }
}

// stk_libjpeg_rows reads the next n rows.
void stk_libjpeg_rows(stk_lane *l, uint8_t **rows, int n) {
  stk_libjpeg *j = l->libjpeg;
  struct jpeg_decompress_struct *c = &j->c;
  if (c->num_components != 4) {
    for (int got = 0; got < n;) got += jpeg_read_scanlines(c, rows + got, n - got);
    return;
  }
  uint8_t *line[1] = {stk_grow(l, &j->cmyk, (size_t)c->output_width * 4)};
  for (int i = 0; i < n; i++) {
    jpeg_read_scanlines(c, line, 1);
    cmyk_row(line[0], rows[i], (int)c->output_width);
  }
}

// stk_libjpeg_end reads the rest of a picture, and makes sure that the file ends
// there.
void stk_libjpeg_end(stk_lane *l) {
  struct jpeg_decompress_struct *c = &l->libjpeg->c;
  uint8_t *waste[1] = {stk_grow(l, &l->line, (size_t)c->output_width * c->output_components)};
  while (c->output_scanline < c->output_height) jpeg_read_scanlines(c, waste, 1);
  l->ending = 1;
  jpeg_finish_decompress(c);
}

// stk_libjpeg_close ends a picture, whether or not it was read to its end. It
// cannot fail.
void stk_libjpeg_close(stk_lane *l) {
  stk_libjpeg *j = l->libjpeg;
  if (!j || !j->busy) return;
  j->busy = 0;
  jpeg_abort_decompress(&j->c);
  reset(j);
}

void stk_libjpeg_free(stk_lane *l) {
  stk_libjpeg *j = l->libjpeg;
  if (!j) return;
  jpeg_destroy_decompress(&j->c);
  for (stk_arena *b = j->arena; b;) {
    stk_arena *next = b->next;
    free(b);
    b = next;
  }
  free(j->cmyk.p);
  free(j);
  l->libjpeg = NULL;
}
