// Marker segments, up to the first scan. Anything that an encoder of training
// pictures does not write is left to libjpeg, which supports all of the standard and
// has a message for each kind of damage.
#include "frame.h"

#include <string.h>

const uint8_t stk_zigzag[BLOCK] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// segment is the parameters of a marker, without their length.
typedef struct {
  const uint8_t *p;
  size_t n;
} segment;

static int word(const uint8_t *p) { return p[0] << 8 | p[1]; }

// DQT (B.2.4.1): tables of Pq << 4 | Tq and 64 values of 8 or 16 bits, in zigzag order.
static int read_dqt(stk_frame *f, segment s) {
  while (s.n > 0) {
    const int wide = s.p[0] >> 4, t = s.p[0] & 15;
    const size_t need = 1 + (size_t)BLOCK * (size_t)(wide + 1);
    if (wide > 1 || t >= FRAME_TABLES || s.n < need) return 0;
    for (int k = 0; k < BLOCK; k++)
      f->quant[t][stk_zigzag[k]] = (uint16_t)(wide ? word(s.p + 1 + 2 * k) : s.p[1 + k]);
    f->have_quant |= 1u << t;
    s.p += need;
    s.n -= need;
  }
  return 1;
}

// DHT (B.2.4.2): tables of Tc << 4 | Th, 16 counts and as many values.
static int read_dht(stk_frame *f, segment s) {
  while (s.n > 0) {
    const int class = s.p[0] >> 4, t = s.p[0] & 15;
    if (class > 1 || t >= FRAME_TABLES || s.n < 17) return 0;
    stk_dht d = {s.p + 1, s.p + 17, 0};
    for (int i = 0; i < 16; i++) d.n += d.bits[i];
    if (d.n > 256 || s.n < 17 + (size_t)d.n) return 0;
    *(class ? &f->ac[t] : &f->dc[t]) = d;
    s.p += 17 + d.n;
    s.n -= 17 + (size_t)d.n;
  }
  return 1;
}

// SOF0 and SOF1 (B.2.2): components in MCUs of at most ten blocks (B.2.3), each with the first one's
// sampling divided.
static int read_sof(stk_frame *f, segment s) {
  if (f->components || s.n < 6 || s.p[0] != 8) return 0;
  f->h = word(s.p + 1);
  f->w = word(s.p + 3);
  const int n = s.p[5];
  if ((n != 1 && n != FRAME_COMPONENTS) || s.n != 6 + 3 * (size_t)n || f->w == 0 || f->h == 0) return 0;
  int blocks = 0;
  for (int i = 0; i < n; i++) {
    const uint8_t *p = s.p + 6 + 3 * i;
    stk_component *c = &f->comp[i];
    *c = (stk_component){.id = p[0], .h = p[1] >> 4, .v = p[1] & 15, .tq = p[2]};
    if (c->h < 1 || c->h > 4 || c->v < 1 || c->v > 4 || c->tq >= FRAME_TABLES) return 0;
    if (n == 1) c->h = c->v = 1;  // a scan of one component goes block by block
    blocks += c->h * c->v;
    if (f->comp[0].h % c->h || f->comp[0].v % c->v) return 0;
    for (int j = 0; j < i; j++)
      if (f->comp[j].id == c->id) return 0;
  }
  if (blocks > MCU_BLOCKS) return 0;
  f->components = n;
  f->hmax = f->comp[0].h;
  f->vmax = f->comp[0].v;
  return 1;
}

static int defined(const stk_frame *f, const stk_component *c) {
  return f->dc[c->td].bits && f->ac[c->ta].bits && f->have_quant >> c->tq & 1;
}

// SOS (B.2.3): all components, in their order, all coefficients at once.
static int read_sos(stk_frame *f, segment s) {
  const int n = f->components;
  if (!n || s.n != 4 + 2 * (size_t)n || s.p[0] != n) return 0;
  for (int i = 0; i < n; i++) {
    stk_component *c = &f->comp[i];
    const uint8_t *p = s.p + 1 + 2 * i;
    c->td = p[1] >> 4;
    c->ta = p[1] & 15;
    if (p[0] != c->id || c->td >= FRAME_TABLES || c->ta >= FRAME_TABLES || !defined(f, c)) return 0;
  }
  const uint8_t *p = s.p + 1 + 2 * n;
  return p[0] == 0 && p[1] == BLOCK - 1 && p[2] == 0;
}

// The colour space of three components: JFIF means YCbCr; otherwise Adobe's transform
// decides; otherwise the components' names, as in libjpeg's default_decompress_parms.
typedef struct {
  int jfif, adobe;  // adobe: its transform; -1: no Adobe marker
} application;

static int read_app(application *a, int m, segment s) {
  if (m == M_APP0 && s.n >= 14 && !memcmp(s.p, "JFIF", 5)) {
    a->jfif = 1;
    return s.p[5] == 1;
  }
  if (m == M_APP14 && s.n >= 12 && !memcmp(s.p, "Adobe", 5)) {
    a->adobe = s.p[11];
    return a->adobe <= 1;
  }
  return 1;
}

static int is_ycc(const stk_frame *f, const application *a) {
  if (a->jfif) return 1;
  if (a->adobe >= 0) return a->adobe == 1;
  return !(f->comp[0].id == 'R' && f->comp[1].id == 'G' && f->comp[2].id == 'B');
}

int stk_frame_read(stk_frame *f, const uint8_t *p, size_t n) {
  // The 512 bytes of quantisation tables are not cleared: have_quant says which are
  // valid.
  f->components = f->restart = 0;
  f->have_quant = 0;
  memset(f->dc, 0, sizeof f->dc);
  memset(f->ac, 0, sizeof f->ac);
  application app = {0, -1};
  if (n < 4 || p[0] != 0xff || p[1] != M_SOI) return 0;
  const uint8_t *const end = p + n;
  f->file = p;
  f->end = end;
  for (p += 2;;) {
    if (end - p < 4 || *p++ != 0xff) return 0;
    while (p < end && *p == 0xff) p++;  // fill bytes
    if (end - p < 3) return 0;
    const int m = *p++;
    const size_t len = (size_t)word(p);
    if (len < 2 || len > (size_t)(end - p)) return 0;
    const segment s = {p + 2, len - 2};
    p += len;
    int ok;
    switch (m) {
    case M_SOF0:
    case M_SOF1: ok = read_sof(f, s); break;
    case M_DHT: ok = read_dht(f, s); break;
    case M_DQT: ok = read_dqt(f, s); break;
    case M_DRI:
      ok = s.n == 2;
      if (ok) f->restart = word(s.p);
      break;
    case M_SOS:
      f->scan = p;
      f->ycc = f->components == FRAME_COMPONENTS && is_ycc(f, &app);
      return read_sos(f, s);
    default: ok = m == M_COM || (m >= M_APP0 && m < M_APP0 + 16 && read_app(&app, m, s));
    }
    if (!ok) return 0;
  }
}
