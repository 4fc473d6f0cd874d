// Colours in AVX-512: tables by vpermi2b; the other loops as in AVX2, in registers of 256
// bits.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math", "no-math-errno", "finite-math-only", "no-signed-zeros")
#include "avx512.h"
#ifndef STK_SIMDE
#pragma GCC target("prefer-vector-width=256")
#endif
#include "colours.h"

// table looks 64 bytes up at a time, in two tables of 128 entries.
static void table(const uint8_t *in, uint8_t *out, int n, const uint8_t *t) {
  const __m512i a = _mm512_loadu_si512(t), b = _mm512_loadu_si512(t + 64);
  const __m512i c = _mm512_loadu_si512(t + 128), d = _mm512_loadu_si512(t + 192);
  int i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i x = _mm512_loadu_si512(in + i);
    const __m512i low = _mm512_permutex2var_epi8(a, x, b), high = _mm512_permutex2var_epi8(c, x, d);
    _mm512_storeu_si512(out + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
  }
  for (; i < n; i++) out[i] = t[in[i]];
}

static void flat_luma(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *y, int n) {
  stk_colours_avx2.flat_luma(r, g, b, y, n);
}

typedef __m512i vec;
enum { LANES = 32 };
#define SPREAD(x) _mm512_set1_epi16(x)
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, x) _mm512_storeu_si512(p, x)
#define ADD(x, y) _mm512_add_epi16(x, y)
#define MULTIPLY(x, y) _mm512_mulhi_epu16(x, y)
#define SHIFT(x, n) _mm512_srli_epi16(x, n)
#define NARROW(p, x, y) \
  _mm512_storeu_si512(p, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packus_epi16(x, y)))
#include "blur.h"

#include "noise.h"
#define STK_COLOURS stk_colours_avx512
#include "colour.h"
#endif
