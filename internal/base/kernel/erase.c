// Erasing rectangles of the rows that a pass has written; erase.go is the twin.
#include "pass.h"
#include "ticks.h"

#include <string.h>

#pragma GCC optimize("fp-contract=off")
#include "half.h"

// fill_box writes one pixel of size bytes into a box of a plane of rows of w pixels.
static void fill_box(uint8_t *plane, int w, const int32_t box[4], const void *pixel, size_t size) {
  const size_t stride = (size_t)w * size, wide = (size_t)box[2] * size;
  uint8_t *first = plane + box[1] * stride + box[0] * size;
  if (box[3] == 0) return;
  for (int x = 0; x < box[2]; x++) memcpy(first + x * size, pixel, size);
  for (int y = 1; y < box[3]; y++) memcpy(first + y * stride, first, wide);
}

// fill_numbers is fill_box in the layout of the result: v has three numbers of size bytes.
static void fill_numbers(const stk_job *j, const sink *k, const int32_t box[4], const void *v, size_t size) {
  const size_t plane = (size_t)k->w * k->h * size;
  if (!j->chw || k->c == 1) {
    fill_box(k->dst, k->w, box, v, k->c * size);
    return;
  }
  for (int c = 0; c < k->c; c++) fill_box(k->dst + c * plane, k->w, box, (const uint8_t *)v + c * size, size);
}

void stk_erase(stk_lane *l, const stk_op *o, const sink *k) {
  const stk_job *j = &l->job;
  const int32_t box[4] = {o->x, o->y, o->w, o->h};
  if (k->final && j->is_float) {
    float v[3];
    for (int c = 0; c < 3; c++) v[c] = (float)o->fill[c] * j->scale[c] + j->bias[c];
    fill_numbers(j, k, box, v, sizeof *v);
  } else if (k->final && j->is_half) {
    const uint16_t v[3] = {j->half[0][o->fill[0]], j->half[1][o->fill[1]], j->half[2][o->fill[2]]};
    fill_numbers(j, k, box, v, sizeof *v);
  } else if (k->final && j->chw) {
    fill_numbers(j, k, box, o->fill, 1);
  } else {
    fill_box(k->dst, k->w, box, o->fill, (size_t)k->c);
  }
}

// row_key is rowKey of noise.go.
static uint64_t row_key(uint64_t key, uint64_t row) {
  uint64_t z = key + (row + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static void fill_noise(stk_lane *l, const stk_erased *e, const sink *k) {
  const int chw = l->job.chw || k->c == 1, w = e->box[2], h = e->box[3], half = (w + 1) / 2;
  float *line = stk_grow(l, &l->line, ((size_t)w + 1) * sizeof *line);
  for (int c = 0; c < k->c; c++) {
    for (int y = 0; y < h; y++) {
      const uint64_t key = row_key(e->key, (uint64_t)c * h + y);
      l->target->colours->normals((uint32_t)key, (uint32_t)(key >> 32), line, line + half, half);
      const size_t row = (size_t)(e->box[1] + y) * k->w + e->box[0], step = chw ? 1 : k->c;
      const size_t at = chw ? (size_t)c * k->w * k->h + row : row * k->c + c;
      float *out = (float *)k->dst + at;
      uint16_t *half_out = (uint16_t *)k->dst + at;
      for (int x = 0; x < w; x++) {
        const float v = line[x] * e->scale[c] + e->bias[c];
        if (l->job.is_half)
          half_out[x * step] = stk_half(l->job.half_type, v);
        else
          out[x * step] = v;
      }
    }
  }
}

void stk_erase_floats(stk_lane *l, const sink *k) {
  for (stk_erased *e = l->job.erased; e < l->job.erased + l->job.nerased; e++) {
    const int64_t since = tick(l);
    const float *v = e->bias;
    const int type = l->job.half_type;
    const uint16_t half[3] = {stk_half(type, v[0]), stk_half(type, v[1]), stk_half(type, v[2])};
    if (e->noise)
      fill_noise(l, e, k);
    else if (l->job.is_half)
      fill_numbers(&l->job, k, e->box, half, sizeof *half);
    else
      fill_numbers(&l->job, k, e->box, v, sizeof *v);
    tock(l, &e->ns, since);
  }
}
