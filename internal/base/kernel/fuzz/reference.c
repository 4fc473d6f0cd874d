// libjpeg's result for a file: all of its pixels, and which MCU it was reading
// when it saw damage.
//
// It gets a few bytes at a time, so that it never uses its fast way of reading
// MCUs, which notices less, and leaves coefficients of a first attempt in
// blocks that it then reads again.
#include "fuzz.h"

#include <jerror.h>
#include <jpeglib.h>
#include <jpegint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { FEED = 400, MOST_PIXELS = 1 << 21, MOST_SCANS = 2000 };

typedef struct {
  struct jpeg_decompress_struct c;
  struct jpeg_error_mgr err;
  struct jpeg_source_mgr src;
  struct jpeg_progress_mgr progress;
  jmp_buf env;
  reference *f;
  const uint8_t *at, *end;
  size_t feed;
  int64_t mcu;
  int last;  // warning of a row
  boolean (*decode)(j_decompress_ptr, JBLOCKROW *);
} session;

static session *of(void *c) { return c; }

static void on_error(j_common_ptr c) {
  session *s = of(c);
  s->f->failed = 1;
  s->f->failed_at = s->mcu;
  char msg[JMSG_LENGTH_MAX];
  c->err->format_message(c, msg);
  snprintf(s->f->failure, sizeof s->f->failure, "%s", msg);
  longjmp(s->env, 1);
}

static void on_message(j_common_ptr c, int level) {
  session *s = of(c);
  reference *f = s->f;
  if (level >= 0) return;
  if (f->warnings < WARNINGS) f->warned[f->warnings++] = (warning){s->mcu, c->err->msg_code, c->err->msg_parm.i[0]};
}

static void on_output(j_common_ptr c) { (void)c; }
static void nothing(j_decompress_ptr c) { (void)c; }

static boolean feed(j_decompress_ptr c) {
  static const uint8_t eoi[2] = {0xff, 0xd9};
  session *s = of(c);
  if (s->at == s->end) {
    WARNMS(c, JWRN_JPEG_EOF);
    s->src.next_input_byte = eoi;
    s->src.bytes_in_buffer = 2;
    return TRUE;
  }
  const size_t n = (size_t)(s->end - s->at) < s->feed ? (size_t)(s->end - s->at) : s->feed;
  s->src.next_input_byte = s->at;
  s->src.bytes_in_buffer = n;
  s->at += n;
  return TRUE;
}

static void skip(j_decompress_ptr c, long n) {
  if (n <= 0) return;
  while ((size_t)n > c->src->bytes_in_buffer) {
    n -= (long)c->src->bytes_in_buffer;
    c->src->bytes_in_buffer = 0;
    if (of(c)->at == of(c)->end) {  // and past the end: that only causes warnings
      feed(c);
      return;
    }
    feed(c);
  }
  c->src->next_input_byte += n;
  c->src->bytes_in_buffer -= (size_t)n;
}

static boolean counted(j_decompress_ptr c, JBLOCKROW *mcu) {
  session *s = of(c);
  if (s->mcu == BEFORE) s->mcu = 0;
  const boolean done = s->decode(c, mcu);
  s->mcu++;
  c->marker->discarded_bytes = 0;  // otherwise they are reported for a later one
  return done;
}

static void on_progress(j_common_ptr c) {
  if (of(c)->c.input_scan_number > MOST_SCANS) ERREXIT1(c, JERR_BAD_STATE, 0);
}

static void cmyk_row(const uint8_t *in, uint8_t *out, int n) {
  for (int i = 0; i < n; i++, in += 4, out += 3)
    for (int c = 0; c < 3; c++) {
      const int t = (255 - in[c]) * in[3] + 128;
      out[c] = (uint8_t)(in[3] - (((t >> 8) + t) >> 8));
    }
}

static void begin(session *s, reference *f, const uint8_t *p, size_t n, size_t feed_at_a_time) {
  s->feed = feed_at_a_time;
  s->f = f;
  s->mcu = BEFORE;
  s->at = p;
  s->end = p + n;
  s->c.err = jpeg_std_error(&s->err);
  s->err.error_exit = on_error;
  s->err.emit_message = on_message;
  s->err.output_message = on_output;
  jpeg_create_decompress(&s->c);
  s->src.init_source = nothing;
  s->src.fill_input_buffer = feed;
  s->src.skip_input_data = skip;
  s->src.resync_to_restart = jpeg_resync_to_restart;
  s->src.term_source = nothing;
  s->c.src = &s->src;
  s->progress.progress_monitor = on_progress;
  s->c.progress = &s->progress;
}

// geometry computes the size of an MCU, and where a pixel's chroma comes from.
static void geometry(reference *f, const struct jpeg_decompress_struct *c) {
  f->multi = c->progressive_mode || jpeg_has_multiple_scans((j_decompress_ptr)c) || c->comps_in_scan != c->num_components;
  f->mcu_w = c->num_components == 1 ? DCTSIZE : c->max_h_samp_factor * DCTSIZE;
  f->mcu_h = c->num_components == 1 ? DCTSIZE : c->max_v_samp_factor * DCTSIZE;
  f->cols = (int)c->MCUs_per_row;
  f->restart = (int)c->restart_interval;
  for (int i = 0; i < c->num_components; i++) {
    const jpeg_component_info *q = &c->comp_info[i];
    const int h1 = c->max_h_samp_factor == q->h_samp_factor, v1 = c->max_v_samp_factor == q->v_samp_factor;
    const int h2 = c->max_h_samp_factor == 2 * q->h_samp_factor, v2 = c->max_v_samp_factor == 2 * q->v_samp_factor;
    const int wide = q->downsampled_width > 2;
    if (h2 && wide && (v1 || v2)) f->fancy_h = 1;
    if (v2 && (h1 || (h2 && wide))) f->fancy_v = 1;
  }
}

static void pixels(session *s, reference *f) {
  struct jpeg_decompress_struct *c = &s->c;
  const size_t need = (size_t)f->w * (size_t)f->h * (size_t)f->c;
  if (need > f->cap) {
    free(f->pix);
    f->cap = 2 * need;
    f->pix = malloc(f->cap);
    if (!f->pix) exit(2);
  }
  uint8_t *line = f->components == 4 ? (uint8_t *)c->mem->alloc_large((j_common_ptr)c, JPOOL_IMAGE, (size_t)f->w * 4) : NULL;
  while (c->output_scanline < c->output_height) {
    JSAMPROW row = f->pix + (size_t)c->output_scanline * (size_t)f->w * (size_t)f->c;
    JSAMPROW to = line ? line : row;
    jpeg_read_scanlines(c, &to, 1);
    if (line) cmyk_row(line, row, f->w);
    f->rows = (int)c->output_scanline;
  }
}

void reference_decode(reference *f, const uint8_t *p, size_t n, int hasty) {
  static session s;
  uint8_t *pix = f->pix;
  const size_t cap = f->cap;
  memset(&s, 0, sizeof s);
  memset(f, 0, sizeof *f);
  f->pix = pix;
  f->cap = cap;
  if (!setjmp(s.env)) {
    struct jpeg_decompress_struct *c = &s.c;
    begin(&s, f, p, n, hasty ? n : FEED);
    jpeg_read_header(c, TRUE);
    f->opened = 1;
    f->w = (int)c->image_width;
    f->h = (int)c->image_height;
    f->components = c->num_components;
    f->c = c->num_components == 1 ? 1 : 3;
    c->dct_method = JDCT_ISLOW;
    c->do_fancy_upsampling = TRUE;
    c->out_color_space = f->c == 1 ? JCS_GRAYSCALE : c->num_components == 3 ? JCS_RGB : JCS_CMYK;
    if ((int64_t)f->w * f->h <= MOST_PIXELS) {
      jpeg_start_decompress(c);
      geometry(f, c);
      if (!f->multi) {
        s.decode = c->entropy->decode_mcu;
        c->entropy->decode_mcu = counted;
      }
      pixels(&s, f);
      s.last = f->warnings;
      f->after = BEFORE;
      jpeg_finish_decompress(c);
    }
  }
  jpeg_destroy_decompress(&s.c);
  if (f->after == BEFORE) {  // the end, good or bad, does not belong to a row
    f->failed = 0;
    f->after = 0;
    for (int i = s.last; i < f->warnings; i++)
      if (f->warned[i].code == JWRN_EXTRANEOUS_DATA && f->warned[i].n > f->after) f->after = f->warned[i].n;
    f->warnings = s.last;
  }
}

// A span is what a region needs, in MCUs.
typedef struct {
  int c0, r0, c1, r1;
} span;

// A pixel takes chroma from its own sample and, with fancy upsampling, from the
// neighbour on its side: the one before for an even coordinate, the one after for an
// odd one.
static span span_of(const reference *f, int x0, int y0, int x1, int y1) {
  if (f->fancy_h) {
    x0 -= x0 > 0 && x0 % 2 == 0;
    x1 += x1 < f->w && x1 % 2 == 0;
  }
  if (f->fancy_v) {
    y0 -= y0 > 0 && y0 % 2 == 0;
    y1 += y1 < f->h && y1 % 2 == 0;
  }
  if (!f->mcu_w) return (span){0};
  return (span){x0 / f->mcu_w, y0 / f->mcu_h, (x1 - 1) / f->mcu_w, (y1 - 1) / f->mcu_h};
}

// needed reports whether a span needs MCU m, or a later one that can only be read
// through it.
static int needed(const reference *f, int64_t m, const span *s) {
  if (m == BEFORE || f->multi || !f->cols) return 1;
  const int64_t end = f->restart ? (m / f->restart + 1) * f->restart - 1 : INT64_MAX;
  for (int r = s->r0; r <= s->r1; r++) {
    int64_t from = (int64_t)r * f->cols + s->c0, to = (int64_t)r * f->cols + s->c1;
    if (from < m) from = m;
    if (to > end) to = end;
    if (from <= to) return 1;
  }
  return 0;
}

// Bytes or a marker between two segments belong to the first, and are found by a
// decoder that reads that segment to its end and continues.
static int met(const reference *f, const warning *w, const span *s, int slack) {
  const int between = w->code == JWRN_EXTRANEOUS_DATA || w->code == JWRN_MUST_RESYNC;
  if (!between || w->at <= 0 || !f->restart || w->at % f->restart) return needed(f, w->at, s);
  if (w->code == JWRN_EXTRANEOUS_DATA && w->n <= slack) return 0;
  return needed(f, w->at - 1, s) && (int64_t)s->r1 * f->cols + s->c1 >= w->at;
}

const char *reference_blames(const reference *f, int x0, int y0, int x1, int y1, int slack) {
  static char text[120];
  const span s = span_of(f, x0, y0, x1, y1);
  for (int i = 0; i < f->warnings; i++) {
    const warning *w = &f->warned[i];
    if (!met(f, w, &s, slack)) continue;
    struct jpeg_error_mgr err;
    jpeg_std_error(&err);
    snprintf(text, sizeof text, "%s (number %d, at MCU %lld)", err.jpeg_message_table[w->code], w->n, (long long)w->at);
    return text;
  }
  return f->failed && needed(f, f->failed_at, &s) ? f->failure : f->opened ? NULL : "no header";
}

int reference_extreme(const uint8_t *p, size_t n) {
  static session s;
  static reference f;
  volatile int extreme = 0;
  memset(&s, 0, sizeof s);
  if (!setjmp(s.env)) {
    begin(&s, &f, p, n, FEED);
    jpeg_read_header(&s.c, TRUE);
    jvirt_barray_ptr *all = jpeg_read_coefficients(&s.c);
    for (int i = 0; i < s.c.num_components && !extreme; i++) {
      const jpeg_component_info *q = &s.c.comp_info[i];
      for (JDIMENSION y = 0; y < q->height_in_blocks; y++) {
        JBLOCKARRAY row = s.c.mem->access_virt_barray((j_common_ptr)&s.c, all[i], y, 1, FALSE);
        for (JDIMENSION x = 0; x < q->width_in_blocks; x++)
          for (int k = 0; k < DCTSIZE2; k++)
            if (q->quant_table && abs(row[0][x][k] * (int)q->quant_table->quantval[k]) > 8 * 1024 + 4096) extreme = 1;
      }
    }
  }
  jpeg_destroy_decompress(&s.c);
  return extreme;
}
