//go:build stoker_libjpeg

// Pictures of several scans, and others that only libjpeg reads, as tokens made from
// its coefficients.
#include "index.h"
#include "libjpeg.h"

enum { MOST_AC = 15 };  // bits

// The limit of a picture's coefficients, in bytes.
enum { MOST_COEFFICIENTS = 96 << 20 };

static uint32_t *coefficient_tokens(stk_lane *l, const JCOEF *block, int64_t *count, uint32_t *t) {
  int run = 0;
  for (int k = 1; k < 64; k++) {
    const int v = block[stk_zigzag[k]];
    if (v == 0) {
      run++;
      continue;
    }
    for (; run > 15; run -= 16, count[0xf0]++) *t++ = 0xf0 << 16;
    const int size = stk_size(v), symbol = run << 4 | size;
    if (__builtin_expect(size > MOST_AC, 0)) stk_fail(l, STK_FORMAT, "an AC coefficient of %d, which has no code", v);
    *t++ = (uint32_t)symbol << 16 | ((uint32_t)(v - (v < 0)) & ((1u << size) - 1));
    count[symbol]++;
    run = 0;
  }
  if (run) {
    *t++ = 0;
    count[0]++;
  }
  t[-1] |= LAST;
  return t;
}

// coefficient_mcu reads an MCU. Blocks outside the picture are not shown; they cost
// least as copies of the last DC coefficient.
static void coefficient_mcu(stk_index *x, stk_edge *edge) {
  const struct jpeg_decompress_struct *c = &x->l->libjpeg->c;
  const int64_t row = x->next / x->cols, col = x->next % x->cols;
  for (int i = 0; i < x->blocks; i++) {
    const stk_part *p = &x->part[i];
    const jpeg_component_info *info = &c->comp_info[p->comp];
    const int64_t bx = col * p->h + p->x, by = row * p->v + p->y;
    static const JBLOCK flat;
    const JCOEF *block = flat;
    int dc = x->pred[p->comp];
    if (bx < info->width_in_blocks && by < info->height_in_blocks) {
      block = x->rows[p->comp][p->y][bx];
      dc = block[0];
    }
    *x->tok_end++ = stk_dc_token(x, p, edge, dc);
    x->tok_end = coefficient_tokens(x->l, block, x->ac_count[x->code_of[p->comp]], x->tok_end);
  }
}

void stk_coefficients_band(stk_index *x) {
  struct jpeg_decompress_struct *c = &x->l->libjpeg->c;
  for (; x->next < x->mcus && x->tok_full - x->tok_end > MCU_TOKENS; x->next++) {
    if (x->next % x->cols == 0 || x->next == x->from)
      for (int i = 0; i < x->comps; i++) {
        const int v = x->comps == 1 ? 1 : c->comp_info[i].v_samp_factor;
        const JDIMENSION first = (JDIMENSION)(x->next / x->cols * v);
        x->rows[i] = c->mem->access_virt_barray((j_common_ptr)c, x->arrays[i], first, (JDIMENSION)v, FALSE);
      }
    coefficient_mcu(x, x->edge + x->next * x->comps);
  }
}

// layout decides which blocks an MCU has. A scan of one component goes block by
// block, whatever its sampling factors are.
static void layout(stk_index *x, const struct jpeg_decompress_struct *c) {
  x->comps = c->num_components;
  x->blocks = 0;
  int64_t wide = c->max_h_samp_factor * DCTSIZE, high = c->max_v_samp_factor * DCTSIZE;
  if (x->comps == 1) wide = high = DCTSIZE;
  x->cols = (c->image_width + wide - 1) / wide;
  x->mcus = (c->image_height + high - 1) / high * x->cols;
  for (int i = 0; i < x->comps; i++) {
    const int h = x->comps == 1 ? 1 : c->comp_info[i].h_samp_factor;
    const int v = x->comps == 1 ? 1 : c->comp_info[i].v_samp_factor;
    x->id[i] = c->comp_info[i].component_id;
    if (x->blocks + h * v > MCU_BLOCKS)
      stk_fail(x->l, STK_UNSUPPORTED, "sampling factors that do not fit into one scan");
    for (int b = 0; b < h * v; b++) x->part[x->blocks++] = (stk_part){.comp = i, .x = b % h, .y = b / h, .h = h, .v = v};
  }
  // The result is baseline, unless its quantisation tables have 16 bits.
  x->sof = M_SOF0;
  for (int i = 0; i < NUM_QUANT_TBLS; i++)
    for (int k = 0; c->quant_tbl_ptrs[i] && k < BLOCK; k++)
      if (c->quant_tbl_ptrs[i]->quantval[k] > 255) x->sof = M_SOF1;
}

void stk_coefficients_begin(stk_index *x) {
  struct jpeg_decompress_struct *c = &x->l->libjpeg->c;
  layout(x, c);
  int64_t bytes = 0;
  for (int i = 0; i < x->blocks; i++) bytes += x->mcus * (int64_t)sizeof(JBLOCK);
  if (bytes > MOST_COEFFICIENTS)
    stk_fail(x->l, STK_UNSUPPORTED, "a JPEG of several scans and %u x %u pixels: its coefficients take %lld MiB; the limit is %d",
             c->image_width, c->image_height, (long long)(bytes >> 20), MOST_COEFFICIENTS >> 20);
  x->h = NULL;
  x->arrays = jpeg_read_coefficients(c);
  stk_libjpeg_complete(x->l, c);
  if (stk_libjpeg_smooths(c))
    stk_fail(x->l, STK_UNSUPPORTED, "an unfinished progressive JPEG: decoders guess what is missing, so no other file has the same pixels");
}
