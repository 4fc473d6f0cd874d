// Regions of sequential Huffman pictures.
//
// A group of MCUs is decoded at a time: huff.c stores its coefficients, the
// transform turns them into samples of each component's plane, and every row of
// pixels that is requested is upsampled and converted from the planes, so that
// everything stays in the nearest caches. Planes have two rows of MCUs, because
// chroma between two samples depends on the row before and the row after. The
// pixels are those of libjpeg-turbo's accurate transform and fancy upsampling of
// the whole picture.
//
// For a half, a quarter or an eighth of the picture, blocks are transformed to 4, 2
// or 1 samples per side (reduced.h), and nothing else is smaller: the pixels are
// again those of libjpeg-turbo with its scale_denom.
//
// Pictures that stk_frame_read does not accept go to libjpeg.c.
#include "jpeg.h"

#include "reduced.h"

#include <stdlib.h>

enum { MARGIN = 64 };  // bytes before and after a row of a plane

// side_of is the number of samples per side of a component's block, as libjpeg
// chooses it in jpeg_calc_output_dimensions: a component that is subsampled both ways
// is reduced less, instead of being upsampled afterwards.
static int side_of(const stk_frame *f, const stk_component *c, int shift) {
  const int least = 8 >> shift;
  int side = least;
  while (side < 8 && f->hmax * least % (c->h * side * 2) == 0 && f->vmax * least % (c->v * side * 2) == 0) side *= 2;
  return side;
}

// spread_of decides how a component's samples become pixels, as libjpeg does in
// jinit_upsampler.
static stk_spread spread_of(const stk_plane *p, int shift) {
  if (shift == 3) return p->hs == 1 ? SPREAD_NONE : SPREAD_REPEAT;
  if (p->hs == 2 && p->vs == 1 && p->width > 2) return SPREAD_H2;
  if (p->hs == 1 && p->vs == 2) return SPREAD_V2;
  if (p->hs == 2 && p->vs == 2 && p->width > 2) return SPREAD_H2V2;
  return p->hs == 1 ? SPREAD_NONE : SPREAD_REPEAT;
}

static int between_rows(const stk_plane *p) { return p->spread == SPREAD_V2 || p->spread == SPREAD_H2V2; }
static int between_columns(const stk_plane *p) { return p->spread == SPREAD_H2 || p->spread == SPREAD_H2V2; }

// other is the row that contributes a quarter to a pixel row between samples.
static int other(const stk_plane *p, int y) {
  const int near = y / 2, far = y & 1 ? near + 1 : near - 1;
  return far < 0 ? 0 : far >= p->height ? p->height - 1 : far;
}

int stk_jpeg_take(stk_lane *l, const uint8_t *in, size_t n) {
  if (!l->jpeg) {
    void *p = NULL;
    if (posix_memalign(&p, 64, sizeof *l->jpeg)) stk_fail(l, STK_MEMORY, "no memory for a JPEG decoder");
    memset(p, 0, sizeof *l->jpeg);
    l->jpeg = p;
  }
  stk_frame *f = &l->jpeg->f;
  return stk_frame_read(f, in, n) && f->w == l->job.w && f->h == l->job.h && f->components == l->job.components;
}

// columns finds the MCUs whose samples the pixels x0 to x1 need.
static void columns(stk_jpeg *j, int x0, int x1) {
  const stk_frame *f = &j->f;
  j->first = INT32_MAX;
  j->last = 0;
  for (int i = 0; i < f->components; i++) {
    const stk_plane *p = &j->plane[i];
    int a = x0 / p->hs, b = (x1 - 1) / p->hs;
    if (between_columns(p)) {
      a = a > 0 ? a - 1 : 0;
      b = b + 1 < p->width ? b + 1 : b;
    }
    a /= p->side * f->comp[i].h;
    b /= p->side * f->comp[i].h;
    if (a < j->first) j->first = a;
    if (b > j->last) j->last = b;
  }
}

// layout assigns memory to each plane.
static void layout(stk_lane *l, stk_jpeg *j) {
  const stk_frame *f = &j->f;
  const int mcus = j->last - j->first + 1;
  size_t samples = 0;
  for (int i = 0; i < f->components; i++) {
    stk_plane *p = &j->plane[i];
    const stk_component *c = &f->comp[i];
    p->columns = ((mcus * c->h + 3) / 4 * 4 * p->side + 31) & ~31;
    p->stride = (ptrdiff_t)(p->columns + 2 * MARGIN);
    p->x = j->first * c->h * p->side;
    samples += (size_t)p->stride * (size_t)(2 * p->side * c->v);
  }
  uint8_t *s = stk_grow(l, &j->samples, samples);
  int quads = 0;
  for (int i = 0; i < f->components; i++) {
    stk_plane *p = &j->plane[i];
    p->sample = s + MARGIN;
    s += p->stride * (2 * p->side * p->v);
    p->quad = j->quad + quads * QUAD;
    p->reach = j->reach + quads;
    quads += f->comp[i].h * p->v * GROUP / 4;
  }
  // Quads are zero except while they are filled; after a failure they are not.
  if (j->dirty) {
    memset(j->quad, 0, sizeof j->quad);
    memset(j->reach, 0, sizeof j->reach);
  }
  j->dirty = 1;
  stk_huff *h = j->huff;
  for (int i = 0; i < h->blocks; i++) {
    const stk_part *part = &h->part[i];
    const stk_plane *p = &j->plane[part->comp];
    const int quad = part->y * part->h * GROUP / 4;
    h->store[i] = (stk_store){p->quad + quad * QUAD, p->reach + quad};
  }
}

// plane_of is component c of the reduced picture.
static stk_plane plane_of(const stk_frame *f, const stk_component *c, int shift) {
  const int side = side_of(f, c, shift), least = 8 >> shift;
  stk_plane p = {.side = side, .v = c->v, .quant = f->quant[c->tq]};
  p.hs = f->hmax * least / (c->h * side);
  p.vs = f->vmax * least / (c->v * side);
  p.width = (f->w * c->h * side + f->hmax * 8 - 1) / (f->hmax * 8);
  p.height = (f->h * c->v * side + f->vmax * 8 - 1) / (f->vmax * 8);
  p.spread = spread_of(&p, shift);
  return p;
}

void stk_jpeg_region(stk_lane *l, int x0, int y0, int x1, int shift) {
  stk_jpeg *j = l->jpeg;
  const stk_frame *f = &j->f;
  j->huff = stk_huff_begin(l, f);
  j->x0 = x0;
  j->x1 = x1;
  j->y = y0;
  j->band = INT32_MAX;
  for (int i = 0; i < f->components; i++) {
    stk_plane *p = &j->plane[i];
    *p = plane_of(f, &f->comp[i], shift);
    const int near = y0 / p->vs, row = between_rows(p) && other(p, y0) < near ? other(p, y0) : near;
    if (row / (p->side * p->v) < j->band) j->band = row / (p->side * p->v);
  }
  columns(j, x0, x1);
  layout(l, j);
  if (f->restart && (j->band > 0 || j->first > 0 || j->last + 1 < j->huff->cols)) stk_segments(j->huff);
}

// edges repeats the outermost samples of the picture, because pixels between samples
// read beyond them.
static void edges(const stk_plane *p, uint8_t *row) {
  const int last = p->width - 1 - p->x;
  for (int y = 0; y < p->side * p->v; y++, row += p->stride) {
    if (p->x == 0) row[-1] = row[0];
    if (last < p->columns) row[last + 1] = row[last];
  }
}

static stk_dct *transform_to(const stk_samples *s, int side) {
  return side == 8 ? s->dct : side == 4 ? s->dct4 : side == 2 ? s->dct2 : stk_dct1;
}

// transform makes the samples of n MCUs from column m on.
static void transform(stk_lane *l, const stk_jpeg *j, int m, int n) {
  for (int i = 0; i < j->f.components; i++) {
    const stk_plane *p = &j->plane[i];
    const int h = j->f.comp[i].h, quads = (n * h + 3) / 4;
    stk_dct *const dct = transform_to(l->target->samples, p->side);
    uint8_t *row = p->sample + (ptrdiff_t)((j->band & 1) * p->side * p->v) * p->stride + m * h * p->side;
    for (int y = 0; y < p->v; y++, row += p->side * p->stride) {
      int16_t *quad = p->quad + (ptrdiff_t)(y * h * GROUP / 4) * QUAD;
      uint8_t *reach = p->reach + y * h * GROUP / 4;
      for (int q = 0; q < quads; q++) {
        dct(quad + q * QUAD, p->quant, reach[q], row + 4 * p->side * q, p->stride);
        reach[q] = 0;
      }
    }
  }
}

// decode_band makes the samples of the next row of MCUs.
static void decode_band(stk_lane *l, stk_jpeg *j) {
  for (int m = j->first; m <= j->last; m += GROUP) {
    const int n = j->last - m + 1 < GROUP ? j->last - m + 1 : GROUP;
    stk_huff_row(j->huff, j->band, m, m + n - 1);
    transform(l, j, m - j->first, n);
  }
  for (int i = 0; i < j->f.components; i++) {
    const stk_plane *p = &j->plane[i];
    if (between_columns(p)) edges(p, p->sample + (ptrdiff_t)((j->band & 1) * p->side * p->v) * p->stride);
  }
  j->band++;
}

static const uint8_t *row_of(const stk_plane *p, int y) {
  return p->sample + (ptrdiff_t)(y % (2 * p->side * p->v)) * p->stride;
}

// pixels returns the component's pixels of row y from column x0 on.
static const uint8_t *pixels(stk_lane *l, const stk_jpeg *j, int i, int y) {
  const stk_plane *p = &j->plane[i];
  const int first = j->x0 / p->hs, n = (j->x1 - 1) / p->hs - first + 1, at = first - p->x;
  const uint8_t *near = row_of(p, y / p->vs) + at;
  if (p->spread == SPREAD_NONE) return near;
  uint8_t *out = j->line[i];
  const uint8_t *far = between_rows(p) ? row_of(p, other(p, y)) + at : NULL;
  switch (p->spread) {
  case SPREAD_H2: l->target->samples->h2(near, out, n); break;
  case SPREAD_V2: l->target->samples->v2(near, far, out, n, 1 + (y & 1)); break;
  case SPREAD_H2V2: l->target->samples->h2v2(near, far, out, n); break;
  default:
    for (int x = 0; x < n; x++)
      for (int k = 0; k < p->hs; k++) out[x * p->hs + k] = near[x];
  }
  return out + j->x0 - first * p->hs;
}

// needed is the last row of MCUs that row y needs.
static int needed(const stk_jpeg *j, int y) {
  int band = 0;
  for (int i = 0; i < j->f.components; i++) {
    const stk_plane *p = &j->plane[i];
    int row = y / p->vs;
    if (between_rows(p) && other(p, y) > row) row = other(p, y);
    if (row / (p->side * p->v) > band) band = row / (p->side * p->v);
  }
  return band;
}

void stk_jpeg_rows(stk_lane *l, uint8_t **rows, int n) {
  stk_jpeg *j = l->jpeg;
  const int w = j->x1 - j->x0, colour = j->f.components == FRAME_COMPONENTS;
  const size_t wide = (size_t)w + 16 + STK_SLACK;
  if (colour) {
    j->line[1] = stk_grow(l, &j->lines, 2 * wide);
    j->line[2] = j->line[1] + wide;
  }
  for (int i = 0; i < n; i++, j->y++) {
    for (const int band = needed(j, j->y); j->band <= band;) decode_band(l, j);
    const uint8_t *luma = pixels(l, j, 0, j->y);
    if (!colour)
      memcpy(rows[i], luma, (size_t)w);
    else
      (j->f.ycc ? l->target->samples->rgb : l->target->samples->merge)(luma, pixels(l, j, 1, j->y), pixels(l, j, 2, j->y), rows[i], w);
  }
}

void stk_jpeg_end(stk_lane *l) { stk_huff_rest(l->jpeg->huff); }

void stk_jpeg_settle(stk_lane *l) { stk_huff_settle(l->jpeg->huff); }

// stk_jpeg_done records that a picture was decoded without an error: its quads are
// zero again.
void stk_jpeg_done(stk_lane *l) { l->jpeg->dirty = 0; }

void stk_jpeg_each(stk_lane *l, void (*what)(stk_buf *)) {
  if (l->huff) what(&l->huff->segs);
  if (!l->jpeg) return;
  what(&l->jpeg->samples);
  what(&l->jpeg->lines);
}

void stk_jpeg_free(stk_lane *l) {
  stk_jpeg *j = l->jpeg;
  if (!j) return;
  free(j);
  l->jpeg = NULL;
}
