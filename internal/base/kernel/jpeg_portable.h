// The vectors of dct.h and reduced.h, as generic vectors of GCC and Clang: 128-bit
// registers, and no instruction of a particular processor.
//
// Most operations are one or two instructions on any processor. Those without an
// operator (int16 times int16 as int32, min and max) are loops over eight or sixteen
// numbers, which the compiler turns into one: GCC 12 finds smull and smlal on arm64,
// and pmullw, pmulhw and pmaxsw on x86-64. It never finds pmaddwd, which Clang does; so
// pairs are put side by side, not interleaved, and only the halves of the products need
// to be added. Saturating from int32 takes twenty instructions without a processor's
// own: v_beyond makes sure that the DCT needs none.
//
// It requires that the lower half of an int32 comes first: big-endian processors use
// plain C.
#include "reduced.h"

#define LANES 8
typedef int16_t V __attribute__((vector_size(16)));
typedef uint16_t V16 __attribute__((vector_size(16)));
typedef int32_t V32 __attribute__((vector_size(16)));
typedef uint32_t VU32 __attribute__((vector_size(16)));
typedef int64_t V64 __attribute__((vector_size(16)));
typedef uint64_t VU64 __attribute__((vector_size(16)));
typedef int8_t V8 __attribute__((vector_size(16)));

#ifdef __clang__
#define SHUFFLE(T, a, b, ...) ((V)__builtin_shufflevector((T)(a), (T)(b), __VA_ARGS__))
#else
#define SHUFFLE(T, a, b, ...) ((V)__builtin_shuffle((T)(a), (T)(b), (T){__VA_ARGS__}))
#endif

// EACH is a loop over n numbers that compilers vectorise: GCC if it has not unrolled
// the loop before, Clang after unrolling it.
#ifdef __clang__
#define EACH(i, n) for (int i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC unroll 1") for (int i = 0; i < (n); i++)
#endif

static INLINE V v_zero(void) { return (V){0}; }
static INLINE V v_load(const void *p) {
  V a;
  memcpy(&a, p, sizeof a);
  return a;
}
static INLINE void v_store(void *p, V a) { memcpy(p, &a, sizeof a); }
static INLINE V v_row(const uint16_t *q) { return v_load(q); }
static INLINE V v_set16(int v) { return (V){0} + (int16_t)v; }
static INLINE V v_mul(V a, V b) { return (V)((V16)a * (V16)b); }
static INLINE V v_add(V a, V b) { return (V)((V16)a + (V16)b); }
static INLINE V v_sub(V a, V b) { return (V)((V16)a - (V16)b); }
static INLINE V v_lo(V a, V b) { return SHUFFLE(V, a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
static INLINE V v_hi(V a, V b) { return SHUFFLE(V, a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
static INLINE V v_lo32(V a, V b) { return SHUFFLE(V32, a, b, 0, 4, 1, 5); }
static INLINE V v_hi32(V a, V b) { return SHUFFLE(V32, a, b, 2, 6, 3, 7); }
static INLINE V v_lo64(V a, V b) { return SHUFFLE(V64, a, b, 0, 2); }
static INLINE V v_hi64(V a, V b) { return SHUFFLE(V64, a, b, 1, 3); }
static INLINE V v_lo8(V a, V b) { return SHUFFLE(V8, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
static INLINE V v_hi8(V a, V b) { return SHUFFLE(V8, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); }
static INLINE V v_pair(int a, int b) {
  const int16_t i = (int16_t)a, j = (int16_t)b;
  return (V){i, i, i, i, j, j, j, j};
}
static INLINE V v_pairs_lo(V a, V b) { return v_lo64(a, b); }
static INLINE V v_pairs_hi(V a, V b) { return v_hi64(a, b); }
static INLINE V v_add32(V a, V b) { return (V)((VU32)a + (VU32)b); }
static INLINE V v_sub32(V a, V b) { return (V)((VU32)a - (VU32)b); }
static INLINE V v_sra32(V a, int n) { return (V)((V32)a >> n); }
static INLINE V v_set32(int v) { return (V)((V32){0} + v); }

static INLINE V v_madd(V s, V a, V c) {
#ifdef __clang__
#define WIDE(v, ...) __builtin_convertvector(__builtin_shufflevector(v, v, __VA_ARGS__), V32)
  const V lo = (V)(WIDE(a, 0, 1, 2, 3) * WIDE(c, 0, 1, 2, 3)), hi = (V)(WIDE(a, 4, 5, 6, 7) * WIDE(c, 4, 5, 6, 7));
#undef WIDE
#else
  int32_t p[8];
  EACH(i, 8) p[i] = a[i] * c[i];
  const V lo = v_load(p), hi = v_load(p + 4);
#endif
  return v_add32(s, v_add32(lo, hi));
}

static INLINE V v_pack32(V a, V b) {
  int32_t in[8];
  int16_t out[8];
  v_store(in, a);
  v_store(in + 4, b);
  EACH(i, 8) {
    int32_t v = in[i];
    v = v < INT16_MIN ? INT16_MIN : v;
    v = v > INT16_MAX ? INT16_MAX : v;
    out[i] = (int16_t)v;
  }
  return v_load(out);
}

static INLINE V v_short32(V a, V b) {
#ifdef __clang__
  return v_pack32(a, b);
#else
  return SHUFFLE(V, a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#endif
}

static INLINE V v_pack16(V a, V b) {
  int16_t in[16];
  int8_t out[16];
  v_store(in, a);
  v_store(in + 8, b);
  EACH(i, 16) {
    int16_t v = in[i];
    v = v < INT8_MIN ? INT8_MIN : v;
    v = v > INT8_MAX ? INT8_MAX : v;
    out[i] = (int8_t)v;
  }
  return v_load(out);
}

static INLINE V v_center(V a) { return (V)((V8)a ^ (int8_t)-128); }

static INLINE int any(V a) {
  uint64_t half[2];
  v_store(half, a);
  return (half[0] | half[1]) != 0;
}
static INLINE int v_wild(V a) { return any((a > 8191) | (a < -8192)); }

// Columns whose sizes sum to S come out of the first pass within 4 * 1.39 * S + 1,
// which is int16 up to S = 5892; those of real pictures reach 2900. Their eighths do
// not wrap when summed, and lose less than one each. The second pass shifts int16 in
// any case.
static INLINE int v_beyond(const V *r, int rows) {
  V sum = v_zero();
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) sum = v_add(sum, (r[i] ^ (r[i] >> 15)) >> 3);
  return any(sum > (5892 - 8 * 8) / 8);
}

static INLINE void v_rows(V a, uint8_t *out, ptrdiff_t stride) {
  uint64_t half[2];
  v_store(half, a);
  memcpy(out, half, 8);
  memcpy(out + stride, half + 1, 8);
}
