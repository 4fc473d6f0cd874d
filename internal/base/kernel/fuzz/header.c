// readHeader of header.go again, in C: the kernel decodes nothing that it refuses,
// and relies on what it found.
#include "fuzz.h"

#include <string.h>

// next is the marker at at, past fill bytes; 0: none.
static int next(const uint8_t *p, size_t n, size_t *at) {
  const size_t begin = *at;
  while (*at < n && p[*at] == 0xff) ++*at;
  return *at == begin || *at >= n ? 0 : p[(*at)++];
}

static const char *frame(header *h, int m, const uint8_t *s, size_t n) {
  if (m != 0xc0 && m != 0xc1 && m != 0xc2 && m != 0xc9 && m != 0xca) return "lossless or hierarchical";
  h->arithmetic = m >= 0xc9;
  h->progressive = m == 0xc2 || m == 0xca;
  if (n < 6 || n != 6 + 3 * (size_t)s[5]) return "a frame header of the wrong length";
  if (s[0] != 8) return "bits a sample";
  h->h = s[1] << 8 | s[2];
  h->w = s[3] << 8 | s[4];
  h->components = s[5];
  if (!h->w || !h->h || (int64_t)h->w * h->h > 178956970) return "its size";
  if (h->components != 1 && h->components != 3 && h->components != 4) return "its number of components";
  int mh = 1, mv = 1;
  for (int i = 0; i < h->components; i++) {
    const int sh = s[6 + 3 * i + 1] >> 4, sv = s[6 + 3 * i + 1] & 15;
    if (sh < 1 || sh > 4 || sv < 1 || sv > 4) return "a sampling factor";
    if (sh > mh) mh = sh;
    if (sv > mv) mv = sv;
  }
  for (int i = 0; i < h->components; i++) {
    const int sh = s[6 + 3 * i + 1] >> 4, sv = s[6 + 3 * i + 1] & 15;
    h->blocks += (int64_t)((h->w * sh + 8 * mh - 1) / (8 * mh)) * ((h->h * sv + 8 * mv - 1) / (8 * mv));
  }
  return NULL;
}

static const char *end(const header *h, const uint8_t *p, size_t n) {
  size_t at = n;
  while (at >= h->scan + 2 && !(p[at - 2] == 0xff && p[at - 1] == 0xd9)) at--;
  if (at < h->scan + 2) return "no end marker";
  if (!h->arithmetic && (int64_t)(at - 2 - h->scan) * 8 < h->blocks * (h->progressive ? 1 : 2)) return "more pixels than bytes";
  return NULL;
}

static const char *walk(header *h, const uint8_t *p, size_t n) {
  if (n < 2 || p[0] != 0xff || p[1] != 0xd8) return "no start marker";
  for (size_t at = 2;;) {
    const int m = next(p, n, &at);
    if (!m) return "no scan";
    if (m == 0xd8 || m == 1 || (m >= 0xd0 && m <= 0xd7)) continue;
    if (m == 0xd9) return "an end before the picture";
    if (at + 2 > n) return "cut within a segment";
    const size_t len = (size_t)(p[at] << 8 | p[at + 1]);
    if (len < 2 || at + len > n) return "cut within a segment";
    const uint8_t *s = p + at + 2;
    at += len;
    if (m >= 0xc0 && m <= 0xcf && m != 0xc4 && m != 0xc8 && m != 0xcc) {
      if (h->w || h->h) return "a second frame header";
      const char *bad = frame(h, m, s, len - 2);
      if (bad) return bad;
    } else if (m == 0xdd) {
      if (len != 4) return "a restart interval of the wrong length";
      h->restart = s[0] << 8 | s[1];
    } else if (m == 0xda) {
      if (!h->progressive && (len < 6 || s[len - 5] != 0 || s[len - 4] != 63 || s[len - 3] != 0)) return "a scan of a part";
      h->scan = at;
      return h->components ? end(h, p, n) : "a scan before the frame header";
    }
  }
}

void header_read(header *h, const uint8_t *p, size_t n) {
  memset(h, 0, sizeof *h);
  h->refused = walk(h, p, n);
}
