// Valid files: libjpeg's encoder with random settings, partly with random
// coefficients and codes.
#include "fuzz.h"

#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  struct jpeg_error_mgr err;
  jmp_buf env;
} failing;

static void on_error(j_common_ptr c) { longjmp(((failing *)c->err)->env, 1); }
static void on_output(j_common_ptr c) { (void)c; }

enum { SMOOTH, NOISE, FLAT, CHECKER, SPARSE, PATTERNS };

// from_row draws what base_other shows from its row on; NULL: base_make draws.
static rng *from_row;

static void draw_picture(rng *r, uint8_t *p, int w, int h, int c, int pattern) {
  const int fx = among(r, 1, 40), fy = among(r, 1, 40), every = among(r, 2, 60);
  uint8_t flat[4] = {(uint8_t)rnd(r), (uint8_t)rnd(r), (uint8_t)rnd(r), (uint8_t)rnd(r)};
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++)
      for (int k = 0; k < c; k++) {
        int v = flat[k];
        switch (pattern) {
        case SMOOTH: v = ((x * fx * (k + 1) / 7 + y * fy / (k + 2)) & 0x7f) + (x * y >> 4 & 0x3f) + (int)below(r, 24); break;
        case NOISE: v = (int)below(r, 256); break;
        case CHECKER: v = ((x / (1 + fx / 14) + y / (1 + fy / 14)) & 1) ? 255 : 0; break;
        case SPARSE: v = below(r, (uint32_t)every) ? flat[k] : (int)below(r, 256); break;
        }
        *p++ = (uint8_t)v;
      }
}

// code_lengths gives n symbols random code lengths, as counts by length, so that the
// rest always fits and the code of all ones stays free.
static void code_lengths(rng *r, uint8_t bits[17], int n) {
  int64_t room = 1;
  memset(bits, 0, 17);
  for (int len = 1; len <= 16 && n > 0; len++) {
    room *= 2;
    int most = 0;
    while (most < n && most < 255 && ((room - most - 1) << (16 - len)) - 1 >= n - most - 1) most++;
    const int few = most < 8 ? most : most / among(r, 1, 4);
    int k = len == 16 ? n : one_in(r, 3) ? 0 : among(r, 0, few);
    if (len == 16 && k > most) k = most;
    bits[len] = (uint8_t)k;
    room -= k;
    n -= k;
  }
}

static int own_table(rng *r, j_compress_ptr c, JHUFF_TBL **slot, int ac) {
  uint8_t sym[256];
  int n = 0;
  for (int v = 0; v < 256; v++)
    if (ac ? (v & 15) <= 10 && ((v & 15) || v == 0 || v == 0xf0) : v <= 11) sym[n++] = (uint8_t)v;
  for (int i = n - 1; i > 0; i--) {
    const int k = (int)below(r, (uint32_t)i + 1);
    const uint8_t t = sym[i];
    sym[i] = sym[k];
    sym[k] = t;
  }
  if (!*slot) *slot = jpeg_alloc_huff_table((j_common_ptr)c);
  code_lengths(r, (*slot)->bits, n);
  int all = 0;
  for (int i = 1; i <= 16; i++) all += (*slot)->bits[i];
  if (all != n) return 0;
  memset((*slot)->huffval, 0, sizeof (*slot)->huffval);
  memcpy((*slot)->huffval, sym, (size_t)n);
  return 1;
}

static void copy_table(j_compress_ptr c, JHUFF_TBL **to, const JHUFF_TBL *from) {
  if (!*to) *to = jpeg_alloc_huff_table((j_common_ptr)c);
  memcpy((*to)->bits, from->bits, sizeof from->bits);
  memcpy((*to)->huffval, from->huffval, sizeof from->huffval);
}

// choose_tables distributes the components over the four tables of either class,
// which are the standard ones or random.
static void choose_tables(rng *r, j_compress_ptr c, char *what) {
  const int made = one_in(r, 2);
  for (int i = 0; i < 4; i++) {
    copy_table(c, &c->dc_huff_tbl_ptrs[i], c->dc_huff_tbl_ptrs[i & 1]);
    copy_table(c, &c->ac_huff_tbl_ptrs[i], c->ac_huff_tbl_ptrs[i & 1]);
  }
  for (int i = 0; i < 4 && made; i++)
    if (!own_table(r, c, &c->dc_huff_tbl_ptrs[i], 0) || !own_table(r, c, &c->ac_huff_tbl_ptrs[i], 1)) longjmp(((failing *)c->err)->env, 1);
  for (int i = 0; i < c->num_components; i++) {
    c->comp_info[i].dc_tbl_no = among(r, 0, 3);
    c->comp_info[i].ac_tbl_no = among(r, 0, 3);
  }
  note(what, made ? " own codes" : " four tables");
}

static void choose_quant(rng *r, j_compress_ptr c, char *what) {
  const int quality = one_in(r, 8) ? 100 : one_in(r, 8) ? 1 : among(r, 1, 100);
  jpeg_set_quality(c, quality, TRUE);
  note(what, " q%d", quality);
  if (!one_in(r, 8)) return;
  const int wide = one_in(r, 3);
  unsigned table[DCTSIZE2];
  for (int t = 0; t < 2; t++) {
    const int most = one_in(r, 2) ? 12 : wide ? 8191 : 255;  // the forward transform divides by at most that
    for (int i = 0; i < DCTSIZE2; i++) table[i] = (unsigned)among(r, 1, most);
    jpeg_add_quant_table(c, t, table, 100, !wide);
  }
  note(what, wide ? " 16-bit quantisation" : " own quantisation");
}

static void choose_sampling(rng *r, j_compress_ptr c, char *what) {
  static const uint8_t usual[6][2] = {{1, 1}, {2, 1}, {2, 2}, {2, 2}, {1, 2}, {4, 1}};
  const uint8_t *u = usual[below(r, 6)];
  for (int i = 0; i < c->num_components; i++) c->comp_info[i].h_samp_factor = c->comp_info[i].v_samp_factor = 1;
  if (one_in(r, 6)) {
    for (int i = 0; i < c->num_components; i++) {
      c->comp_info[i].h_samp_factor = one_in(r, 4) ? among(r, 1, 4) : among(r, 1, 2);
      c->comp_info[i].v_samp_factor = one_in(r, 4) ? among(r, 1, 4) : among(r, 1, 2);
    }
  } else {
    c->comp_info[0].h_samp_factor = u[0];
    c->comp_info[0].v_samp_factor = u[1];
    if (c->num_components == 4) {
      c->comp_info[3].h_samp_factor = u[0];
      c->comp_info[3].v_samp_factor = u[1];
    }
  }
  for (int i = 0; i < c->num_components; i++) note(what, " %dx%d", c->comp_info[i].h_samp_factor, c->comp_info[i].v_samp_factor);
}

static void choose_space(rng *r, j_compress_ptr c, int channels, char *what) {
  c->in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(c);
  if (channels == 3 && one_in(r, 5)) {
    jpeg_set_colorspace(c, JCS_RGB);
    note(what, " rgb");
  }
  if (channels == 4 && one_in(r, 2)) jpeg_set_colorspace(c, JCS_YCCK);
  if (one_in(r, 6)) c->write_JFIF_header = FALSE;
  if (one_in(r, 10)) c->write_Adobe_marker = !c->write_Adobe_marker;
}

static void choose_scans(rng *r, j_compress_ptr c, jpeg_scan_info *scans, char *what) {
  if (one_in(r, 12)) {
    jpeg_simple_progression(c);
    note(what, " progressive");
  } else if (one_in(r, 16) && c->num_components > 1) {
    for (int i = 0; i < c->num_components; i++)
      scans[i] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {i}, .Se = DCTSIZE2 - 1};
    c->scan_info = scans;
    c->num_scans = c->num_components;
    note(what, " separate scans");
  } else if (one_in(r, 30)) {
    c->arith_code = TRUE;
    note(what, " arithmetic");
  }
}

static void app_segments(rng *r, j_compress_ptr c) {
  uint8_t junk[300];
  for (int n = among(r, 1, 3); n > 0; n--) {
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = one_in(r, 3) ? 0xff : (uint8_t)rnd(r);
    jpeg_write_marker(c, one_in(r, 3) ? JPEG_COM : JPEG_APP0 + among(r, 1, 13), junk, below(r, sizeof junk));
  }
}

// write_coefficients encodes coefficients that no picture has, of every size that a
// baseline code has.
static void write_coefficients(rng *r, j_compress_ptr c, int w, int h) {
  jvirt_barray_ptr arrays[MAX_COMPONENTS];
  int mh = 1, mv = 1;
  c->image_width = (JDIMENSION)w;
  c->image_height = (JDIMENSION)h;
  for (int i = 0; i < c->num_components; i++) {
    if (c->comp_info[i].h_samp_factor > mh) mh = c->comp_info[i].h_samp_factor;
    if (c->comp_info[i].v_samp_factor > mv) mv = c->comp_info[i].v_samp_factor;
  }
  for (int i = 0; i < c->num_components; i++) {
    jpeg_component_info *q = &c->comp_info[i];
    const int sh = q->h_samp_factor, sv = q->v_samp_factor;
    const JDIMENSION bw = (JDIMENSION)((w + 8 * mh - 1) / (8 * mh) * sh), bh = (JDIMENSION)((h + 8 * mv - 1) / (8 * mv) * sv);
    arrays[i] = c->mem->request_virt_barray((j_common_ptr)c, JPOOL_IMAGE, TRUE, bw, bh, (JDIMENSION)sv);
  }
  jpeg_write_coefficients(c, arrays);
  const uint32_t sparse = among(r, 1, 20), most = one_in(r, 2) ? 10 : (uint32_t)among(r, 1, 10);
  for (int i = 0; i < c->num_components; i++) {
    jpeg_component_info *q = &c->comp_info[i];
    const JDIMENSION bh = (JDIMENSION)((h + 8 * mv - 1) / (8 * mv) * q->v_samp_factor);
    const int bw = (w + 8 * mh - 1) / (8 * mh) * q->h_samp_factor;
    for (JDIMENSION y = 0; y < bh; y++) {
      JBLOCKARRAY row = c->mem->access_virt_barray((j_common_ptr)c, arrays[i], y, 1, TRUE);
      for (int x = 0; x < bw; x++)
        for (int k = 0; k < DCTSIZE2; k++) {
          const int size = (int)below(r, most + 1), v = (int)below(r, 1u << size);
          row[0][x][k] = (JCOEF)(below(r, sparse) ? 0 : one_in(r, 2) ? v : -v);
        }
    }
  }
}

static int choose_side(rng *r) {
  const uint32_t k = below(r, 100);
  if (k < 60) return among(r, 1, 50);
  if (k < 90) return among(r, 8, 100);
  if (k < 94) return 8 * among(r, 1, 16);
  return k < 99 ? among(r, 1, 9) : among(r, 100, 400);
}

static void compress(rng *r, j_compress_ptr c, int w, int h, int channels, uint8_t *volatile *pix, char *what) {
  jpeg_scan_info scans[MAX_COMPONENTS];
  choose_space(r, c, channels, what);
  choose_quant(r, c, what);
  choose_sampling(r, c, what);
  c->dct_method = JDCT_ISLOW;
  if (one_in(r, 2)) c->restart_interval = (unsigned)(one_in(r, 3) ? among(r, 1, 3) : among(r, 1, 30));
  if (c->restart_interval) note(what, " restart %u", c->restart_interval);
  choose_scans(r, c, scans, what);
  const int plain = !c->num_scans && !c->arith_code;
  if (one_in(r, 2)) {
    c->optimize_coding = TRUE;
  } else if (plain && one_in(r, 3)) {
    choose_tables(r, c, what);
  }
  if (plain && one_in(r, 10)) {
    note(what, " coefficients");
    write_coefficients(from_row ? from_row : r, c, w, h);
    return;
  }
  *pix = malloc((size_t)w * (size_t)h * (size_t)channels);
  if (!*pix) exit(2);
  const int pattern = one_in(r, 2) ? SMOOTH : (int)below(r, PATTERNS);
  draw_picture(r, *pix, w, h, channels, pattern);
  if (from_row) {
    const int row = one_in(from_row, 2) ? 0 : (int)below(from_row, (uint32_t)h);
    draw_picture(from_row, *pix + (size_t)row * (size_t)w * (size_t)channels, w, h - row, channels, pattern);
  }
  jpeg_start_compress(c, TRUE);
  if (one_in(r, 6)) app_segments(r, c);
  while (c->next_scanline < c->image_height) {
    JSAMPROW row = *pix + (size_t)c->next_scanline * (size_t)w * (size_t)channels;
    jpeg_write_scanlines(c, &row, 1);
  }
}

static int try_make(rng *r, bytes *out, char *what) {
  struct jpeg_compress_struct c;
  failing e;
  uint8_t *volatile pix = NULL;
  uint8_t *volatile made = NULL;
  unsigned long n = 0;
  memset(&c, 0, sizeof c);
  c.err = jpeg_std_error(&e.err);
  e.err.error_exit = on_error;
  e.err.output_message = on_output;
  uint8_t *buf = NULL;
  if (setjmp(e.env)) {
    jpeg_destroy_compress(&c);
    free(pix);
    free(buf);
    return 0;
  }
  jpeg_create_compress(&c);
  jpeg_mem_dest(&c, &buf, &n);
  const int w = choose_side(r), h = choose_side(r), kind = (int)below(r, 10);
  const int channels = kind < 2 ? 1 : kind < 9 ? 3 : 4;
  note(what, "%dx%d, %d channels,", w, h, channels);
  c.image_width = (JDIMENSION)w;
  c.image_height = (JDIMENSION)h;
  c.input_components = channels;
  compress(r, &c, w, h, channels, &pix, what);
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  made = buf;
  out->n = 0;
  bytes_put(out, made, n);
  free(made);
  free(pix);
  return 1;
}

// Some settings contradict each other, such as too many blocks in an MCU: then it
// draws others.
void base_make(rng *r, bytes *out, char *what) {
  do what[0] = 0;
  while (!try_make(r, out, what));
}

void base_other(rng *r, rng *other, bytes *out) {
  char what[NOTE];
  from_row = other;
  base_make(r, out, what);
  from_row = NULL;
}

void base_plain(bytes *out, int side, int noise, int kind) {
  rng r = {1};
  struct jpeg_compress_struct c;
  struct jpeg_error_mgr err;
  uint8_t *buf = NULL, *pix = malloc((size_t)side * (size_t)side * 3);
  unsigned long n = 0;
  if (!pix) exit(2);
  draw_picture(&r, pix, side, side, 3, noise ? NOISE : FLAT);
  memset(&c, 0, sizeof c);
  c.err = jpeg_std_error(&err);
  jpeg_create_compress(&c);
  jpeg_mem_dest(&c, &buf, &n);
  c.image_width = c.image_height = (JDIMENSION)side;
  c.input_components = 3;
  c.in_color_space = JCS_RGB;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, 90, TRUE);
  c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = 1;
  if (kind == PROGRESSIVE) jpeg_simple_progression(&c);
  c.arith_code = kind == ARITHMETIC;
  jpeg_start_compress(&c, TRUE);
  while (c.next_scanline < c.image_height) {
    JSAMPROW row = pix + (size_t)c.next_scanline * (size_t)side * 3;
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  out->n = 0;
  bytes_put(out, buf, n);
  free(buf);
  free(pix);
}
