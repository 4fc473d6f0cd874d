// LZW as GIF and TIFF have it. The twin is lzwTwin.
//
// A string is a place in the output and a length, and so is copied from there: eight bytes at
// a time where there is room for more than it has.
#include "lzw.h"

#include <string.h>

#pragma GCC optimize("O3")

static inline void copy(uint8_t *dst, const uint8_t *end, size_t to, size_t from, size_t n) {
  if ((size_t)(end - dst) - to < n + 7) { // near the end
    for (size_t i = 0; i < n; i++) dst[to + i] = dst[from + i];
    return;
  }
  if (to - from >= 8) {
    for (size_t i = 0; i < n; i += 8) memcpy(dst + to + i, dst + from + i, 8);
    return;
  }
  for (size_t i = 0; i < n; i++) dst[to + i] = dst[from + i];
}

int stk_lzw_decode(stk_lzw *t, uint8_t *dst, size_t n, size_t *got, const uint8_t *src, size_t nsrc, int bits, int tiff) {
  const uint32_t stop = 1u << bits, end = stop + 1;
  const uint32_t early = tiff ? 1 : 0;
  uint32_t width = (uint32_t)bits + 1, next = end + 1;
  uint64_t acc = 0; // tiff: the next code's first bit is bit 63; else it is bit 0
  uint32_t held = 0;
  size_t at = 0, w = 0, last = 0, last_size = 0;
  int begun = !tiff, chain = 0; // chain: there is a string before this one
  int code = STK_LZW_OK;
  while (w < n) {
    if (held < width) {
      if (nsrc - at >= 8) {
        uint64_t v;
        memcpy(&v, src + at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap64(v);
#endif
        const uint32_t more = (63 - held) >> 3;
        if (tiff)
          acc |= __builtin_bswap64(v) >> held;
        else
          acc |= v << held;
        at += more;
        held += 8 * more;
        // Bits beyond held belong to the next bytes, and are loaded again.
      } else {
        for (; held <= 56 && at < nsrc; held += 8, at++) {
          const uint64_t mask = ~UINT64_C(0);
          if (tiff)
            acc = (held ? acc & mask << (64 - held) : 0) | (uint64_t)src[at] << (56 - held);
          else
            acc = (held ? acc & mask >> (64 - held) : 0) | (uint64_t)src[at] << held;
        }
        if (held < width) {
          code = STK_LZW_CUT;
          break;
        }
      }
    }
    uint32_t v;
    if (tiff) {
      v = (uint32_t)(acc >> (64 - width));
      acc <<= width;
    } else {
      v = (uint32_t)acc & ((1u << width) - 1);
      acc >>= width;
    }
    held -= width;
    if (!begun && v != stop) {
      code = STK_LZW_START;
      break;
    }
    const size_t from = w;
    size_t size = 1;
    if (v < stop) {
      dst[w] = (uint8_t)v;
    } else if (v == stop) {
      begun = 1;
      width = (uint32_t)bits + 1;
      next = end + 1;
      chain = 0;
      continue;
    } else if (v == end) {
      break;
    } else if (v < next) {
      size = t->size[v];
      if (size > n - w) size = n - w;
      copy(dst, dst + n, w, t->start[v], size);
    } else if (v == next && chain) { // the string before and its own first byte
      size = last_size + 1;
      if (size > n - w) size = n - w;
      for (size_t i = 0; i < size; i++) dst[w + i] = dst[last + i];
    } else {
      code = STK_LZW_CODE;
      break;
    }
    w += size;
    if (chain && next < 4096) {
      t->start[next] = (uint32_t)last;
      t->size[next] = (uint16_t)(last_size + 1);
      if (++next >= (1u << width) - early && width < 12) width++;
    }
    chain = 1;
    last = from;
    last_size = size;
  }
  *got = w;
  return code;
}

void stk_unpredict(uint8_t *p, size_t n, size_t rows, size_t back) {
  for (; rows; rows--, p += n) {
    switch (back) {
    case 1: {
      uint8_t a = p[0];
      for (size_t i = 1; i < n; i++) p[i] = a = (uint8_t)(a + p[i]);
      break;
    }
    case 3: {
      uint8_t a = p[0], b = p[1], c = p[2];
      for (size_t i = 3; i + 3 <= n; i += 3) {
        p[i] = a = (uint8_t)(a + p[i]);
        p[i + 1] = b = (uint8_t)(b + p[i + 1]);
        p[i + 2] = c = (uint8_t)(c + p[i + 2]);
      }
      break;
    }
    case 4: {
      uint8_t a = p[0], b = p[1], c = p[2], d = p[3];
      for (size_t i = 4; i + 4 <= n; i += 4) {
        p[i] = a = (uint8_t)(a + p[i]);
        p[i + 1] = b = (uint8_t)(b + p[i + 1]);
        p[i + 2] = c = (uint8_t)(c + p[i + 2]);
        p[i + 3] = d = (uint8_t)(d + p[i + 3]);
      }
      break;
    }
    default:
      for (size_t i = back; i < n; i++) p[i] = (uint8_t)(p[i] + p[i - back]);
    }
  }
}
