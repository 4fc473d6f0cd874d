// Where the segments of a scan begin: after its restart markers.
//
// In entropy-coded data 0xff is always followed by 0x00, so every marker is found
// by scanning the bytes alone, many at a time, without decoding.
#include "stk.h"

#include <string.h>

#include "huff.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

// The markers that end the search: those of restarts, and the others with a second
// byte of 0xd0 to 0xdf (start, end, scan). Any other marker is damage, and is found
// by the decoder of its segment.
static int ends(const uint8_t *p) { return p[0] == 0xff && (p[1] & 0xf0) == 0xd0; }

typedef struct {
  const uint8_t *data;
  uint32_t *seg;
  int64_t n, found;  // segments expected, and found
  int over;          // one restart marker too many, or the end
} search;

// meet handles the marker at p.
static INLINE void meet(search *s, const uint8_t *p) {
  const int k = p[1] - M_RST0;
  if (p[1] == M_EOI) s->over = 1;
  if (k > 7) return;
  if (s->found == s->n || k != ((s->found - 1) & 7)) {
    s->found = -1;
    s->over = 1;
  } else {
    s->seg[s->found++] = (uint32_t)(p + 2 - s->data);
  }
}

static void look(search *s, const uint8_t *p, const uint8_t *end) {
  for (; p < end - 1 && !s->over; p++)
    if (ends(p)) meet(s, p);
}

#ifdef __x86_64__
// 64 bytes at a time: one bit for each that ends the search.
static INLINE uint64_t ends_sse2(const uint8_t *p) {
  const __m128i ff = _mm_set1_epi8(-1), d0 = _mm_set1_epi8((char)0xd0), f0 = _mm_set1_epi8((char)0xf0);
  uint64_t where = 0;
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const __m128i a = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), ff);
    const __m128i b = _mm_cmpeq_epi8(_mm_and_si128(_mm_loadu_si128((const __m128i *)(p + 16 * i + 1)), f0), d0);
    where |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_and_si128(a, b)) << 16 * i;
  }
  return where;
}

__attribute__((target("avx2"))) static inline uint64_t ends_avx2(const uint8_t *p) {
  const __m256i ff = _mm256_set1_epi8(-1), d0 = _mm256_set1_epi8((char)0xd0), f0 = _mm256_set1_epi8((char)0xf0);
  uint64_t where = 0;
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    const __m256i a = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(p + 32 * i)), ff);
    const __m256i b = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)(p + 32 * i + 1)), f0), d0);
    where |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_and_si256(a, b)) << 32 * i;
  }
  return where;
}

#define LOOK_WIDE(ENDS)                                                                 \
  for (; end - p > 64 && !s->over; p += 64)                                             \
    for (uint64_t w = ENDS(p); w && !s->over; w &= w - 1) meet(s, p + __builtin_ctzll(w)); \
  look(s, p, end)

static void look_sse2(search *s, const uint8_t *p, const uint8_t *end) { LOOK_WIDE(ends_sse2); }

__attribute__((target("avx2,bmi"))) static void look_avx2(search *s, const uint8_t *p, const uint8_t *end) { LOOK_WIDE(ends_avx2); }
#endif

// stk_segments finds the segments of a scan. It finds none unless their number
// matches the interval, their markers count correctly, and the first has the right
// length: then the scan is read in order, which reports what is wrong.
void stk_segments(stk_huff *h) {
  search s = {.data = h->f->scan, .n = (h->mcus + h->restart - 1) / h->restart, .found = 1};
  if (s.n < 2 || h->f->end - h->f->scan < 2 || h->f->end - h->f->scan > UINT32_MAX) return;
  s.seg = stk_grow(h->l, &h->segs, (size_t)s.n * sizeof *s.seg);
  s.seg[0] = 0;
#ifdef __x86_64__
  if (h->l->level > 0 && __builtin_cpu_supports("bmi"))
    look_avx2(&s, h->f->scan, h->f->end);
  else
    look_sse2(&s, h->f->scan, h->f->end);
#else
  look(&s, h->f->scan, h->f->end);
#endif
  // The interval may be wrong but match the number of segments: then every segment
  // shows it, but a decoder that leaves segments before their end would not notice.
  if (s.found != s.n || !stk_huff_keeps_interval(h)) return;
  h->seg = s.seg;
  h->leaps = 1;
}
