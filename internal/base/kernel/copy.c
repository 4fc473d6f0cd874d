// Copying into memory that another process reads next.
#include "stk.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

// stk_copy_out copies n bytes past the caches. Another core reads them, after a
// while; plain stores would first fetch the old contents of every line, which takes
// as long as the writing itself (3.8 against 2.0 ms for 38.5 MB).
void stk_copy_out(uint8_t *dst, const uint8_t *src, size_t n) {
#ifdef __SSE2__
  size_t head = (64 - ((uintptr_t)dst & 63)) & 63;
  if (n >= 4096) {
    memcpy(dst, src, head);
    dst += head, src += head, n -= head;
    for (; n >= 64; dst += 64, src += 64, n -= 64) {
      __m128i a = _mm_loadu_si128((const __m128i *)src);
      __m128i b = _mm_loadu_si128((const __m128i *)(src + 16));
      __m128i c = _mm_loadu_si128((const __m128i *)(src + 32));
      __m128i d = _mm_loadu_si128((const __m128i *)(src + 48));
      _mm_stream_si128((__m128i *)dst, a);
      _mm_stream_si128((__m128i *)(dst + 16), b);
      _mm_stream_si128((__m128i *)(dst + 32), c);
      _mm_stream_si128((__m128i *)(dst + 48), d);
    }
    _mm_sfence();
  }
#endif
  memcpy(dst, src, n);
}
