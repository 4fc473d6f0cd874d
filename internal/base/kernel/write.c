// Writing a picture of tokens: its markers, tables and segments.
#include "index.h"

#include <stdlib.h>

// The most bytes of an MCU, including stuffing: 10 blocks of 64 symbols of 31 bits.
enum { MCU_WRITTEN = 8 << 10 };

// grow makes room for n bytes more.
static void grow(stk_index *x, size_t n) {
  if (x->cap - x->nout >= n) return;
  size_t cap = x->cap + x->cap / 2 + n + (64 << 10);
  uint8_t *p = realloc(x->out, cap);
  if (!p) stk_fail(x->l, STK_MEMORY, "no memory for %zu bytes of a JPEG", cap);
  x->out = p;
  x->cap = cap;
}

static void put_bytes(stk_index *x, const void *p, size_t n) {
  grow(x, n);
  memcpy(x->out + x->nout, p, n);
  x->nout += n;
}

static void put_marker(stk_index *x, int marker, size_t n) {
  const uint8_t b[4] = {0xff, (uint8_t)marker, (uint8_t)((n + 2) >> 8), (uint8_t)(n + 2)};
  put_bytes(x, b, 4);
}

// copied reports whether a segment is copied unchanged: all are, except those that
// describe the coding of the scan.
static int copied(int m) { return m != M_DHT && m != M_DRI && m != M_SOS && m != M_DAC && m != M_DNL; }

// segments walks the marker segments of a file and copies those that stay, also from
// between scans. The entropy-coded data between them contain no markers except
// restarts.
static void segments(stk_index *x, const uint8_t *in, size_t n, int sequential) {
  int scans = 0;
  for (size_t at = 2; at + 4 <= n;) {
    if (in[at] != 0xff || in[at + 1] == 0xff) {
      at++;
      continue;
    }
    const int m = in[at + 1];
    if (m == 0 || m == 1 || (m >= 0xd0 && m <= 0xd8)) {
      at += 2;
      continue;
    }
    if (m == 0xd9) return;
    const size_t len = (size_t)in[at + 2] << 8 | in[at + 3];
    if (len < 2 || at + 2 + len > n) stk_fail(x->l, STK_FORMAT, "the JPEG ends inside a marker segment");
    if (m == M_DQT && scans) stk_fail(x->l, STK_UNSUPPORTED, "a JPEG whose quantisation tables change between scans");
    if (m == M_SOS && ++scans && sequential) return;
    // Segments that describe the colours count for decoders only before the first
    // scan.
    const int late = scans > 0 && (m == M_APP0 || m == M_APP14);
    if (copied(m) && !late) {
      const size_t head = x->nout;
      put_bytes(x, in + at, 2 + len);
      if (m == M_SOF2) x->out[head + 1] = (uint8_t)x->sof;
    }
    at += 2 + len;
  }
}

static void tables(stk_index *x) {
  size_t n = 0;
  for (int i = 0; i < x->codes; i++) n += (size_t)(2 * 17 + x->dc[i].n + x->ac[i].n);
  put_marker(x, M_DHT, n);
  for (int i = 0; i < 2 * x->codes; i++) {
    const stk_code *c = i & 1 ? &x->ac[i / 2] : &x->dc[i / 2];
    const uint8_t which = (uint8_t)((i & 1) << 4 | i / 2);
    put_bytes(x, &which, 1);
    put_bytes(x, c->bits + 1, 16);
    put_bytes(x, c->values, (size_t)c->n);
  }
}

void stk_write_head(stk_index *x, const uint8_t *in, size_t n, int sequential) {
  static const uint8_t start[2] = {0xff, 0xd8};
  x->nout = 0;
  put_bytes(x, start, 2);
  segments(x, in, n, sequential);
  tables(x);
  if (x->restart) {
    const uint8_t b[2] = {(uint8_t)(x->restart >> 8), (uint8_t)x->restart};
    put_marker(x, M_DRI, 2);
    put_bytes(x, b, 2);
  }
  uint8_t b[1 + 2 * MAX_COMPONENTS_IN + 3] = {(uint8_t)x->comps};
  uint8_t *p = b + 1;
  for (int i = 0; i < x->comps; i++) {
    *p++ = (uint8_t)x->id[i];
    *p++ = (uint8_t)(x->code_of[i] << 4 | x->code_of[i]);
  }
  *p++ = 0;
  *p++ = BLOCK - 1;
  *p++ = 0;
  put_marker(x, M_SOS, (size_t)(p - b));
  put_bytes(x, b, (size_t)(p - b));
}

// A writer collects bits in acc, the last one lowest.
typedef struct {
  uint64_t acc;
  int room;    // bits that acc still takes
  uint8_t *p;
} writer;

static INLINE void put_stuffed(writer *w, int bytes) {
  for (int i = bytes - 1; i >= 0; i--) {
    const uint8_t b = (uint8_t)(w->acc >> 8 * i);
    *w->p++ = b;
    if (b == 0xff) *w->p++ = 0;
  }
}

// put_bits writes the low n bits of v, which has no others; n < 64.
static INLINE void put_bits(writer *w, uint64_t v, int n) {
  w->room -= n;
  if (__builtin_expect(w->room >= 0, 1)) {
    w->acc = w->acc << n | v;
    return;
  }
  w->acc = w->acc << (n + w->room) | v >> -w->room;
  // A byte of ones is one whose top bit carries out when 1 is added; carries come
  // only from such bytes.
  if (__builtin_expect((w->acc & 0x8080808080808080u & ~(w->acc + 0x0101010101010101u)) != 0, 0)) {
    put_stuffed(w, 8);
  } else {
    uint64_t x = w->acc;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    memcpy(w->p, &x, 8);
    w->p += 8;
  }
  w->room += 64;
  w->acc = v;
}

// end_segment fills the last byte with ones.
static void end_segment(writer *w) {
  const int pad = w->room & 7;
  w->acc = w->acc << pad | ((1u << pad) - 1);
  put_stuffed(w, (64 - w->room + pad) / 8);
  w->acc = 0;
  w->room = 64;
}

static INLINE const uint32_t *put_mcu(stk_index *x, writer *to, const uint32_t *t) {
  writer w = *to;
  for (int i = 0; i < x->blocks; i++) {
    const stk_part *p = &x->part[i];
    const int dc = (int16_t)*t++, diff = dc - x->pred[p->comp], size = stk_size(diff);
    uint64_t e = x->dc[x->code_of[p->comp]].put[size];
    x->pred[p->comp] = dc;
    put_bits(&w, (uint32_t)e | ((uint32_t)(diff - (diff < 0)) & ((1u << size) - 1)), (int)(e >> 32));
    const uint64_t *put = x->ac[x->code_of[p->comp]].put;
    uint32_t tok;
    do {
      tok = *t++;
      e = put[tok >> 16];
      put_bits(&w, (uint32_t)e | (tok & (LAST - 1)), (int)(e >> 32));
    } while (!(tok & LAST));
  }
  *to = w;
  return t;
}

// put_band writes the tokens of the present band, and stops if they take more than
// limit bytes.
static INLINE int put_band(stk_index *x, writer *w, size_t limit) {
  const uint32_t *t = x->tok;
  for (int64_t m = x->from; m < x->next; m++) {
    if (x->cap - x->nout < MCU_WRITTEN) grow(x, MCU_WRITTEN);
    w->p = x->out + x->nout;
    if (x->restart && m > 0 && m % x->restart == 0) {
      end_segment(w);
      *w->p++ = 0xff;
      *w->p++ = (uint8_t)(M_RST0 + ((m / x->restart - 1) & 7));
      memset(x->pred, 0, sizeof x->pred);
    }
    t = put_mcu(x, w, t);
    x->nout = (size_t)(w->p - x->out);
    if (x->nout > limit) return 0;
  }
  return 1;
}

static int put_band_any(stk_index *x, writer *w, size_t limit) { return put_band(x, w, limit); }

#ifdef __x86_64__
__attribute__((target("bmi,bmi2,lzcnt"))) static int put_band_bmi2(stk_index *x, writer *w, size_t limit) {
  return put_band(x, w, limit);
}
#endif

int stk_write_scan(stk_index *x, size_t limit) {
  writer w = {0, 64, NULL};
  int more = x->next < x->mcus, fits;
  if (x->from > 0) {
    stk_tokens_rewind(x);
    more = stk_tokens_band(x);
  }
  int32_t pred[MAX_COMPONENTS_IN] = {0};
  for (;;) {
    // Reading a band moves pred as writing does.
    memcpy(x->pred, pred, sizeof pred);
#ifdef __x86_64__
    if (x->l->level > 0 && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt"))
      fits = put_band_bmi2(x, &w, limit);
    else
#endif
      fits = put_band_any(x, &w, limit);
    memcpy(pred, x->pred, sizeof pred);
    if (!fits || !more) break;
    more = stk_tokens_band(x);
  }
  grow(x, MCU_WRITTEN);
  w.p = x->out + x->nout;
  end_segment(&w);
  *w.p++ = 0xff;
  *w.p++ = M_EOI;
  x->nout = (size_t)(w.p - x->out);
  return fits && x->nout <= limit;
}
