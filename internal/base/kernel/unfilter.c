// PNG's row filters, undone (PNG, Third Edition, 9.2). The twin is unfilterGo.
//
// A byte depends on the one to its left, some dozen cycles earlier with the filter
// Paeth. So several rows are processed together: 4 rows of pixels of 3 or 4 bytes,
// 2 of 6 or 8, 16 of one byte, each one pixel later than the row above it, whose
// result it needs. Every row has its own filter: all filters are computed, and a
// mask for each lane selects one. Remaining rows and the corners of such a band are
// processed byte by byte.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC optimize("O3")

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && (defined __x86_64__ || defined __ARM_NEON || defined __VSX__)
#define VECTORS
#endif

enum { NONE, SUB, UP, AVERAGE, PAETH };

// paeth is the one of left (a), above (b) and above left (c) that is nearest to a + b
// - c; in a tie, the first.
static inline uint8_t paeth(int a, int b, int c) {
  int pa = b - c, pb = a - c, pc = pa + pb;
  pa = pa < 0 ? -pa : pa;
  pb = pb < 0 ? -pb : pb;
  pc = pc < 0 ? -pc : pc;
  if (pb <= pc) c = b, pc = pb;
  return (uint8_t)(pa <= pc ? a : c);
}

// part undoes bytes i to n of a row.
static void part(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t i, size_t n, int filter, size_t back) {
  const size_t head = back < n ? back : n;
  switch (filter) {
  case NONE:
    if (n > i) memmove(dst + i, src + i, n - i);
    break;
  case SUB:
    for (; i < head; i++) dst[i] = src[i];
    for (; i < n; i++) dst[i] = (uint8_t)(src[i] + dst[i - back]);
    break;
  case UP:
    for (; i < n; i++) dst[i] = (uint8_t)(src[i] + up[i]);
    break;
  case AVERAGE:
    for (; i < head; i++) dst[i] = (uint8_t)(src[i] + up[i] / 2);
    for (; i < n; i++) dst[i] = (uint8_t)(src[i] + (dst[i - back] + up[i]) / 2);
    break;
  default:
    for (; i < head; i++) dst[i] = (uint8_t)(src[i] + up[i]);
    for (; i < n; i++) dst[i] = (uint8_t)(src[i] + paeth(dst[i - back], up[i], up[i - back]));
  }
}

#ifdef VECTORS
typedef uint8_t V __attribute__((vector_size(16)));

static inline V v_load(const void *p) {
  V v;
  memcpy(&v, p, 16);
  return v;
}

static inline void v_store(void *p, V v) { memcpy(p, &v, 16); }

#ifdef __SSE2__
#include <emmintrin.h>
#define I(v) ((__m128i)(v))
static inline V v_min(V a, V b) { return (V)_mm_min_epu8(I(a), I(b)); }
static inline V v_less(V a, V b) { return (V)_mm_subs_epu8(I(a), I(b)); } // a - b, at least 0
static inline V v_average(V a, V b) { return (V)_mm_avg_epu8(I(a), I(b)); }
// v_up moves bytes up by 1, 4 or 8 positions and fills with zeros.
static inline V v_up(V v, const int bytes) {
  return (V)(bytes == 1 ? _mm_slli_si128(I(v), 1) : bytes == 4 ? _mm_slli_si128(I(v), 4) : _mm_slli_si128(I(v), 8));
}
static inline V v_low(V a, V b) { return (V)_mm_unpacklo_epi8(I(a), I(b)); }
static inline V v_high(V a, V b) { return (V)_mm_unpackhi_epi8(I(a), I(b)); }
#else
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (V){__VA_ARGS__})
#endif
static inline V v_less(V a, V b) { return (a - b) & (V)(a > b); }
static inline V v_min(V a, V b) { return a - v_less(a, b); }
static inline V v_average(V a, V b) { return (a | b) - ((a ^ b) >> 1); }
static inline V v_up(V v, const int bytes) { return (V)((unsigned __int128)v << 8 * bytes); }
static inline V v_low(V a, V b) { return SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
static inline V v_high(V a, V b) { return SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); }
#endif

// masks selects, for each lane, the filter of its row.
typedef struct {
  V sub, up, average, paeth;
} masks;

static masks masks_of(const uint8_t *src, size_t stride, const int rows) {
  masks m = {0};
  for (int i = 0; i < 16; i++) {
    const int filter = src[(size_t)(i / (16 / rows)) * stride];
    m.sub[i] = filter == SUB ? 255 : 0;
    m.up[i] = filter == UP ? 255 : 0;
    m.average[i] = filter == AVERAGE ? 255 : 0;
    m.paeth[i] = filter == PAETH ? 255 : 0;
  }
  return m;
}

// undo adds the filter's prediction to x. Paeth in bytes: if c is between a and b, it
// is |pa - pb| from a + b - c, otherwise at least as far as both others; 255 stands
// for that.
static inline V undo(V x, V a, V b, V c, const masks *m) {
  const V one = v_load("\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1");
  const V ac = v_less(a, c), ca = v_less(c, a), bc = v_less(b, c), cb = v_less(c, b);
  const V pa = bc | cb, pb = ac | ca;
  const V between = v_min(ac, cb) | v_min(ca, bc);
  const V pc = (V)(between == 0) | v_less(pa, pb) | v_less(pb, pa);
  const V b_wins = (V)(v_less(pb, pc) == 0), a_wins = (V)(v_less(pa, v_min(pb, pc)) == 0);
  V p = c ^ ((b ^ c) & b_wins);
  p = p ^ ((a ^ p) & a_wins);
  const V mean = v_average(a, b) - ((a ^ b) & one);
  return x + ((a & m->sub) | (b & m->up) | (mean & m->average) | (p & m->paeth));
}

// wide undoes a band of rows whose pixels are lanes of 4 or 8 bytes, of which back
// count. Lane r is r pixels later than lane 0. A store writes a whole lane, so the
// last pixel of each row is left to part.
static inline void wide(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n, const size_t back, const int lane) {
  const int rows = 16 / lane;
  const masks m = masks_of(src, n + 1, rows);
  const size_t pixels = n / back, turns = pixels - (size_t)rows;
  for (int r = 0; r < rows; r++)
    part(dst + (size_t)r * n, src + (size_t)r * (n + 1) + 1, r ? dst + (size_t)(r - 1) * n : up, 0, (size_t)(rows - 1 - r) * back,
         src[(size_t)r * (n + 1)], back);
  // The pixels before those of the first step.
  V a = {0}, b = {0}, c = {0};
  for (int r = 0; r < rows; r++) {
    const uint8_t *above = r ? dst + (size_t)(r - 1) * n : up;
    const size_t x = (size_t)(rows - 1 - r) * back;
    for (size_t i = 0; i < back; i++) {
      if (x) a[(size_t)(r * lane) + i] = dst[(size_t)r * n + x - back + i];
      if (x) c[(size_t)(r * lane) + i] = above[x - back + i];
      b[(size_t)(r * lane) + i] = above[x + i];
    }
  }
  const uint8_t *in = src + 1 + (size_t)(rows - 1) * back, *over = up + (size_t)rows * back;
  uint8_t *out = dst + (size_t)(rows - 1) * back;
  for (size_t t = 0; t < turns; t++, in += back, out += back, over += back) {
    V x = {0}, next = {0};
    if (lane == 4) {
      uint32_t q[4], o;
      for (int r = 0; r < 4; r++) memcpy(&q[r], in + (size_t)r * (n + 1) - (size_t)r * back, 4);
      memcpy(&o, over, 4);
      x = (V)(__attribute__((vector_size(16))) uint32_t){q[0], q[1], q[2], q[3]};
      next = (V)(__attribute__((vector_size(16))) uint32_t){o};
    } else {
      uint64_t q[2], o;
      for (int r = 0; r < 2; r++) memcpy(&q[r], in + (size_t)r * (n + 1) - (size_t)r * back, 8);
      memcpy(&o, over, 8);
      x = (V)(__attribute__((vector_size(16))) uint64_t){q[0], q[1]};
      next = (V)(__attribute__((vector_size(16))) uint64_t){o};
    }
    a = undo(x, a, b, c, &m);
    c = b;
    b = next | v_up(a, lane);
    for (int r = 0; r < rows; r++) memcpy(out + (size_t)r * n - (size_t)r * back, (const uint8_t *)&a + r * lane, (size_t)lane);
  }
  for (int r = 0; r < rows; r++)
    part(dst + (size_t)r * n, src + (size_t)r * (n + 1) + 1, r ? dst + (size_t)(r - 1) * n : up, (turns + (size_t)(rows - 1 - r)) * back, n,
         src[(size_t)r * (n + 1)], back);
}

// transpose exchanges rows and columns of 16 x 16 bytes.
static inline void transpose(V v[16]) {
  V w[16];
  for (int i = 0; i < 8; i++) w[2 * i] = v_low(v[i], v[i + 8]), w[2 * i + 1] = v_high(v[i], v[i + 8]);
  for (int i = 0; i < 8; i++) v[2 * i] = v_low(w[i], w[i + 8]), v[2 * i + 1] = v_high(w[i], w[i + 8]);
  for (int i = 0; i < 8; i++) w[2 * i] = v_low(v[i], v[i + 8]), w[2 * i + 1] = v_high(v[i], v[i + 8]);
  for (int i = 0; i < 8; i++) v[2 * i] = v_low(w[i], w[i + 8]), v[2 * i + 1] = v_high(w[i], w[i + 8]);
}

// narrow undoes 16 rows of one-byte pixels, 16 steps at a time: the rows' next bytes
// are transposed, and the results transposed back.
static void narrow(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n) {
  enum { ROWS = 16 };
  const masks m = masks_of(src, n + 1, ROWS);
  const size_t turns = (n - ROWS) & ~(size_t)15;
  for (int r = 0; r < ROWS; r++)
    part(dst + (size_t)r * n, src + (size_t)r * (n + 1) + 1, r ? dst + (size_t)(r - 1) * n : up, 0, (size_t)(ROWS - 1 - r), src[(size_t)r * (n + 1)], 1);
  V a = {0}, b = {0}, c = {0};
  for (int r = 0; r < ROWS; r++) {
    const uint8_t *above = r ? dst + (size_t)(r - 1) * n : up;
    const size_t x = (size_t)(ROWS - 1 - r);
    if (x) a[r] = dst[(size_t)r * n + x - 1];
    if (x) c[r] = above[x - 1];
    b[r] = above[x];
  }
  for (size_t t = 0; t < turns; t += 16) {
    V v[ROWS];
    for (int r = 0; r < ROWS; r++) v[r] = v_load(src + (size_t)r * (n + 1) + 1 + t + (size_t)(ROWS - 1 - r));
    const uint8_t *over = up + t + ROWS;
    transpose(v);
    for (int i = 0; i < 16; i++) {
      a = v[i] = undo(v[i], a, b, c, &m);
      c = b;
      b = v_up(a, 1) | (V){over[i]};
    }
    transpose(v);
    for (int r = 0; r < ROWS; r++) v_store(dst + (size_t)r * n + t + (size_t)(ROWS - 1 - r), v[r]);
  }
  for (int r = 0; r < ROWS; r++)
    part(dst + (size_t)r * n, src + (size_t)r * (n + 1) + 1, r ? dst + (size_t)(r - 1) * n : up, turns + (size_t)(ROWS - 1 - r), n,
         src[(size_t)r * (n + 1)], 1);
}

// band undoes as many of the remaining rows as can be done side by side, and returns
// how many.
static size_t band(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n, size_t left, size_t back) {
  const size_t rows = back == 1 ? 16 : back == 3 || back == 4 ? 4 : back == 6 || back == 8 ? 2 : 0;
  if (!rows || left < rows || n < 2 * rows * back) return 0;
  int serial = 0;
  for (size_t r = 0; r < rows; r++) {
    const int filter = src[r * (n + 1)];
    if (filter > PAETH) return 0;
    serial |= filter != NONE && filter != UP;
  }
  if (!serial) return 0; // nothing to wait for: part's loops are vectors
  switch (back) {
  case 1: narrow(dst, src, up, n); break;
  case 3: wide(dst, src, up, n, 3, 4); break;
  case 4: wide(dst, src, up, n, 4, 4); break;
  case 6: wide(dst, src, up, n, 6, 8); break;
  case 8: wide(dst, src, up, n, 8, 8); break;
  }
  return rows;
}
#else
static size_t band(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n, size_t left, size_t back) {
  (void)dst, (void)src, (void)up, (void)n, (void)left, (void)back;
  return 0;
}
#endif

// stk_unfilter undoes the filters of rows of n bytes, each after its filter byte,
// with pixels of back bytes; up is the row above the first. It returns how many rows
// it did: the next one, if any, has an undefined filter. src may follow dst in the
// same memory, at least 16 rows later, and is then overwritten.
size_t stk_unfilter(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n, size_t rows, size_t back) {
  size_t y = 0;
  while (y < rows) {
    size_t k = band(dst, src, up, n, rows - y, back);
    if (!k) {
      if (src[0] > PAETH) return y;
      part(dst, src + 1, up, 0, n, src[0], back);
      k = 1;
    }
    y += k;
    up = dst + (k - 1) * n;
    dst += k * n;
    src += k * (n + 1);
  }
  return y;
}
