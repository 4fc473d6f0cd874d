// Warps in AVX2: eight pixels at a time, of which lane 0 of a register has the first four
// and lane 1 the others.
//
// A pixel's two neighbours in a row are loaded together. pshufb brings each channel's two
// values side by side, and pmaddwd applies both weights. Pixels that are not inside the
// picture are computed from its first pixels, and then replaced.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2")
#pragma GCC optimize("O3", "fp-contract=off")
#include <immintrin.h>
#include "warp.h"

// A block is where eight pixels come from. Of its 64-bit numbers, the first register has
// those of pixels 0, 1, 4 and 5, the second those of 2, 3, 6 and 7.
typedef struct {
  __m256i x[2], y[2];
} block;

// spread wraps around: pixels past the end of a row may be anywhere, and are masked.
static inline __m256i spread(int64_t from, int64_t by, uint64_t n) {
  const uint64_t at = (uint64_t)from, step = (uint64_t)by;
  return _mm256_setr_epi64x((int64_t)(at + step * n), (int64_t)(at + step * (n + 1)), (int64_t)(at + step * (n + 4)), (int64_t)(at + step * (n + 5)));
}

static inline __m256i place4(__m256d at, double scale, double rest, double off, __m256d part) {
  const __m256d add = _mm256_set1_pd(STK_PLACE_ADD);
  __m256d v = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(scale), at), _mm256_set1_pd(rest));
  v = _mm256_sub_pd(_mm256_mul_pd(v, part), _mm256_set1_pd(off));
  v = _mm256_max_pd(_mm256_min_pd(v, _mm256_set1_pd(STK_MOST_PLACE)), _mm256_set1_pd(STK_LEAST_PLACE));
  const __m256i bits = _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(v, add)), _mm256_castpd_si256(add));
  return _mm256_slli_epi64(bits, STK_PLACE_BITS - 30);
}

// quotients is the block that begins at pixel i, where places are not exact.
static inline block quotients(const stk_warp *w, int i) {
  const double *m = w->map->real;
  block b;
  for (int k = 0; k < 2; k++) {
    const __m256d at = _mm256_add_pd(_mm256_set1_pd(i + 2 * k), _mm256_setr_pd(0.5, 1.5, 4.5, 5.5));
    const __m256d below = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[6]), at), _mm256_set1_pd(w->part));
    const __m256d part = _mm256_div_pd(_mm256_set1_pd(1), below);
    b.x[k] = place4(at, m[0], w->nx, m[8], part);
    b.y[k] = place4(at, m[3], w->ny, m[8], part);
  }
  return b;
}

// nearest8 is the numbers nearest to the places of eight pixels, of which at is how far they
// are from the middle. What is too large, or no number, becomes less than any size.
static inline __m256i nearest8(__m256 at, float scale, float row, float rest, float half) {
  __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_set1_ps(scale), at), _mm256_set1_ps(row));
  v = _mm256_add_ps(_mm256_add_ps(v, _mm256_set1_ps(rest)), _mm256_set1_ps(1));
  return _mm256_cvtps_epi32(_mm256_sub_ps(_mm256_mul_ps(v, _mm256_set1_ps(half)), _mm256_set1_ps(0.5f)));
}

static inline __m256i halves(const __m256i v[2], const int upper) {
  const __m256 a = _mm256_castsi256_ps(v[0]), b = _mm256_castsi256_ps(v[1]);
  return _mm256_castps_si256(upper ? _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)) : _mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
}

// below says which of eight numbers are from 0 to most.
static inline __m256i below(__m256i v, __m256i most) { return _mm256_cmpeq_epi32(_mm256_min_epu32(v, most), v); }

static inline int each_of(__m256i v) { return _mm256_movemask_ps(_mm256_castsi256_ps(v)); }

// rgb_pair loads the neighbours of a pixel for each lane.
static inline __m256i rgb_pair(const uint8_t *p, const uint8_t *q) {
  const __m256i side = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0, -1, 3, -1, 1, -1, 4, -1, 2, -1,
                                        5, -1, -1, -1, -1, -1);
  const __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)), _mm_loadu_si128((const __m128i *)q), 1);
  return _mm256_shuffle_epi8(v, side);
}

static inline __m256i weigh(__m256i top, __m256i bottom, __m256i by_top, __m256i by_bottom) {
  const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(top, by_top), _mm256_madd_epi16(bottom, by_bottom));
  return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (STK_WARP_BITS - 1))), STK_WARP_BITS);
}

#define RGB(j)                                                                                                          \
  weigh(rgb_pair(p + off[j], p + off[j + 4]), rgb_pair(p + stride + off[j], p + stride + off[j + 4]),                  \
        _mm256_shuffle_epi32(by_top, j * 0x55), _mm256_shuffle_epi32(by_bottom, j * 0x55))

static inline __m128i gray_pairs(const uint8_t *p, const int32_t *off) {
  __m128i v = _mm_setzero_si128();
  uint16_t two;
#define TWO(k)                  \
  memcpy(&two, p + off[k], 2);  \
  v = _mm_insert_epi16(v, two, k);
  TWO(0) TWO(1) TWO(2) TWO(3) TWO(4) TWO(5) TWO(6) TWO(7)
#undef TWO
  return v;
}

// between makes eight pixels by weights.
static inline void between(const uint8_t *p, size_t stride, const int32_t off[8], __m256i fx, __m256i fy, uint8_t *out, const int c) {
  const __m256i one = _mm256_set1_epi32(1 << STK_WARP_BITS);
  fx = _mm256_srli_epi32(fx, STK_PLACE_BITS - STK_WARP_BITS);
  fy = _mm256_srli_epi32(fy, STK_PLACE_BITS - STK_WARP_BITS);
  const __m256i both = _mm256_srli_epi32(_mm256_madd_epi16(fx, fy), STK_WARP_BITS), right = _mm256_sub_epi32(fx, both);
  const __m256i left = _mm256_sub_epi32(_mm256_sub_epi32(one, fy), right);
  const __m256i by_top = _mm256_or_si256(left, _mm256_slli_epi32(right, 16));
  const __m256i by_bottom = _mm256_or_si256(_mm256_sub_epi32(fy, both), _mm256_slli_epi32(both, 16));
  if (c == 1) {
    const __m256i v = weigh(_mm256_cvtepu8_epi16(gray_pairs(p, off)), _mm256_cvtepu8_epi16(gray_pairs(p + stride, off)), by_top, by_bottom);
    const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(v, v), v);
    _mm_storeu_si32(out, _mm256_castsi256_si128(bytes));
    _mm_storeu_si32(out + 4, _mm256_extracti128_si256(bytes, 1));
    return;
  }
  const __m256i dense = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13,
                                         14, -1, -1, -1, -1);
  const __m256i a = _mm256_packus_epi32(RGB(0), RGB(1)), b = _mm256_packus_epi32(RGB(2), RGB(3));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(a, b), dense);
  _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(bytes));
  _mm_storeu_si128((__m128i *)(out + 12), _mm256_extracti128_si256(bytes, 1));
}

// near copies eight pixels.
static inline void near(const uint8_t *p, const int32_t off[8], uint8_t *out, const int c) {
  for (int k = 0; k < 8; k++) memcpy(out + k * c, p + off[k], c == 3 ? 4 : 1);
}

static inline __attribute__((always_inline)) void row(const stk_warp *w, uint8_t *out, const int c, const int is_near, const int linear) {
  const stk_map *m = w->map;
  // Inside, wide loads stay in the picture: those of three channels in the row below.
  const int spare = c == 3 ? 1 : 0;
  const int most_x = w->w - (is_near ? 1 : 2), most_y = w->h - (is_near ? 1 : 2) - spare;
  const __m256i in_x = _mm256_set1_epi32(most_x), in_y = _mm256_set1_epi32(most_y);
  const __m256i w1 = _mm256_set1_epi32(w->w), h1 = _mm256_set1_epi32(w->h), one = _mm256_set1_epi32(1);
  const __m256i stride = _mm256_set1_epi32(w->w * c);
  uint8_t fill[32];
  for (int k = 0; k < 32; k++) fill[k] = m->fill[k % c];
  block b = {{spread(w->x, m->whole[0], 0), spread(w->x, m->whole[0], 2)}, {spread(w->y, m->whole[3], 0), spread(w->y, m->whole[3], 2)}};
  const __m256i dx = _mm256_set1_epi64x((int64_t)(8 * (uint64_t)m->whole[0])), dy = _mm256_set1_epi64x((int64_t)(8 * (uint64_t)m->whole[3]));
  for (int i = 0; i < w->n; i += 8, out += 8 * c) {
    __m256i x, y;
    if (is_near && linear) {
      const __m256 at = _mm256_sub_ps(_mm256_add_ps(_mm256_set1_ps(i), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)), _mm256_set1_ps(m->middle[0]));
      x = nearest8(at, m->grid[0], w->gx, m->grid[2], m->half[0]);
      y = nearest8(at, m->grid[3], w->gy, m->grid[5], m->half[1]);
    } else {
      if (!linear) b = quotients(w, i);
      x = halves(b.x, 1), y = halves(b.y, 1);
    }
    const __m256i inside = _mm256_and_si256(below(x, in_x), below(y, in_y));
    int rest = 255 & ~each_of(inside);
    __m256i offs = _mm256_add_epi32(_mm256_mullo_epi32(y, stride), c == 3 ? _mm256_add_epi32(x, _mm256_add_epi32(x, x)) : x);
    if (rest) {
      const int all = rest == 255;
      // Which have no part of the picture: places from -1 on have some.
      const __m256i touch = _mm256_and_si256(below(_mm256_add_epi32(x, one), w1), below(_mm256_add_epi32(y, one), h1));
      offs = _mm256_and_si256(offs, inside);
      if (all && !each_of(touch)) {
        memcpy(out, fill, 8 * (size_t)c);
        rest = 0;
        goto next;
      }
      if (all) goto patch;
    }
    {
      int32_t off[8] __attribute__((aligned(32)));
      _mm256_store_si256((__m256i *)off, offs);
      if (is_near)
        near(w->pix, off, out, c);
      else
        between(w->pix, (size_t)w->w * c, off, halves(b.x, 0), halves(b.y, 0), out, c);
    }
  patch:
    if (i + 8 > w->n) rest &= (1 << (w->n - i)) - 1;
    for (; rest; rest &= rest - 1) {
      const int k = __builtin_ctz(rest);
      stk_warp_one(w, i + k, out + k * c);
    }
  next:
    if (linear && !is_near)
      for (int k = 0; k < 2; k++) {
        b.x[k] = _mm256_add_epi64(b.x[k], dx);
        b.y[k] = _mm256_add_epi64(b.y[k], dy);
      }
  }
}

void stk_warp_avx2(const stk_warp *w, uint8_t *out) {
  const int is_near = w->map->near, linear = w->map->exact || w->map->single;
  if (w->w < 4 || w->h < 3) {
    stk_warp_base(w, out);
  } else if (w->c == 3) {
    if (is_near)
      linear ? row(w, out, 3, 1, 1) : row(w, out, 3, 1, 0);
    else
      linear ? row(w, out, 3, 0, 1) : row(w, out, 3, 0, 0);
  } else if (is_near) {
    linear ? row(w, out, 1, 1, 1) : row(w, out, 1, 1, 0);
  } else {
    linear ? row(w, out, 1, 0, 1) : row(w, out, 1, 0, 0);
  }
}
#endif
