// Where the segments of a scan begin: behind its restart markers.
//
// Entropy-coded data never hold 0xff but before 0x00, so every marker is found
// by looking at the bytes alone, many at a time, without decoding.
#include "stk.h"

#include <string.h>

#include "huff.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

// Fill bytes, 0xff before a marker, belong to it.
static int plain(const uint8_t *p) { return p[0] != 0xff || p[1] == 0 || p[1] == 0xff; }

// next_marker is the first 0xff at p or behind that begins a marker, or end - 1.
static INLINE const uint8_t *next_marker(const uint8_t *p, const uint8_t *end) {
#ifdef __SSE2__
  const __m128i ff = _mm_set1_epi8(-1), zero = _mm_setzero_si128();
  for (; end - p > 64; p += 64) {
    __m128i any = zero, m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const __m128i v = _mm_loadu_si128((const __m128i *)(p + 16 * i));
      const __m128i w = _mm_loadu_si128((const __m128i *)(p + 16 * i + 1));
      m[i] = _mm_andnot_si128(_mm_or_si128(_mm_cmpeq_epi8(w, zero), _mm_cmpeq_epi8(w, ff)), _mm_cmpeq_epi8(v, ff));
      any = _mm_or_si128(any, m[i]);
    }
    if (!_mm_movemask_epi8(any)) continue;
    uint64_t where = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) where |= (uint64_t)(unsigned)_mm_movemask_epi8(m[i]) << 16 * i;
    return p + __builtin_ctzll(where);
  }
#endif
  while (p < end - 1 && plain(p)) p++;
  return p;
}

// stk_segments finds the segments of a scan of so many MCUs. Unless there are
// as many as the interval says, and their markers count as they should, it
// finds none, and the scan is read in order, which tells what is wrong. Other
// markers, which only damage puts there, are left to whoever reads their segment.
void stk_segments(struct stk_huff *h, int64_t mcus) {
  const int64_t n = (mcus + h->restart - 1) / h->restart;
  if (n < 2 || h->in_end - h->data < 2 || h->in_end - h->data > UINT32_MAX) return;
  uint32_t *seg = stk_grow(h->l, &h->segs, (size_t)n * sizeof *seg);
  seg[0] = 0;
  int64_t found = 1;
  for (const uint8_t *p = h->data;; p += 2) {
    p = next_marker(p, h->in_end);
    if (p >= h->in_end - 1 || p[1] == JPEG_EOI) break;
    const int k = p[1] - JPEG_RST0;
    if (k < 0 || k > 7) continue;
    if (found == n) return;  // one too many
    if (k == ((found - 1) & 7)) seg[found++] = (uint32_t)(p + 2 - h->data);
  }
  if (found == n) h->seg = seg;
}
