// The loops of colours, over planes of n bytes in place. Plain C that compilers vectorise:
// colour_base.c, colour_avx2.c and colour_avx512.c compile it, each with its own table and
// flat_luma.
static void mask(const uint8_t *in, uint8_t *out, int n, uint8_t and, uint8_t flip) {
  for (int i = 0; i < n; i++) out[i] = (uint8_t)((in[i] & and) ^ flip);
}

// blend makes f of each value and rest of y's.
static void blend(uint8_t *restrict p, const uint8_t *restrict y, int n, float f, float rest) {
  for (int i = 0; i < n; i++) p[i] = stk_level((float)p[i] * f + (float)y[i] * rest);
}

// faded is the value of a channel whose distance from the hue, on the hexagon, is k.
static inline uint8_t faded(float k, float most, float chroma) {
  k = k >= 6 ? k - 6 : k;
  float lack = k < 4 - k ? k : 4 - k;
  lack = lack < 1 ? lack : 1;
  lack = lack > 0 ? lack : 0;
  return (uint8_t)(int32_t)((most - chroma * lack) * (float)(255.999 / 255));
}

static void hue(uint8_t *restrict rs, uint8_t *restrict gs, uint8_t *restrict bs, int n, float turn) {
  for (int i = 0; i < n; i++) {
    const int32_t r = rs[i], g = gs[i], b = bs[i];
    int32_t most = r > g ? r : g, least = r < g ? r : g;
    most = most > b ? most : b;
    least = least < b ? least : b;
    const int32_t chroma = most - least;
    int32_t part = r - g;
    float from = 4;
    part = g == most ? b - r : part;
    from = g == most ? 2 : from;
    part = r == most ? g - b : part;
    from = r == most ? 0 : from;
    float h = (float)part / (float)(chroma > 1 ? chroma : 1) + from + turn;
    h = h < 0 ? h + 6 : h;
    h = h >= 6 ? h - 6 : h;
    rs[i] = faded(h + 5, (float)most, (float)chroma);
    gs[i] = faded(h + 3, (float)most, (float)chroma);
    bs[i] = faded(h + 1, (float)most, (float)chroma);
  }
}

// sharpen makes the inner pixels of a row of n bytes. Sums are of 16 bits as far as they can
// be, which halves their cost.
static void sharpen(const uint8_t *a, const uint8_t *b, const uint8_t *d, uint8_t *restrict out, int n, int c, float f, float rest) {
  enum { MANY = 256 };
  uint8_t smooth[MANY];
  for (int at = c; at < n - c; at += MANY) {
    const int m = n - c - at < MANY ? n - c - at : MANY;
    const uint8_t *p = a + at, *q = b + at, *r = d + at;
    for (int i = 0; i < m; i++) {
      const uint16_t sides = (uint16_t)(p[i - c] + p[i] + p[i + c] + r[i - c] + r[i] + r[i + c]);
      const uint16_t twice = (uint16_t)(2 * (sides + q[i - c] + q[i + c] + 5 * q[i]) + 13);
      smooth[i] = (uint8_t)((uint16_t)((uint32_t)twice * 40330u >> 16) >> 4);  // divided by 26: exact up to 6643
    }
    for (int i = 0; i < m; i++) out[at + i] = stk_level((float)q[i] * f + (float)smooth[i] * rest);
  }
}

static uint64_t sum(const uint8_t *p, int n) {
  uint64_t all = 0;
  for (int at = 0; at < n; at += 1 << 16) {
    uint32_t part = 0;
    for (int i = at; i < n && i < at + (1 << 16); i++) part += p[i];
    all += part;
  }
  return all;
}

static void range(const uint8_t *p, int n, uint8_t *least, uint8_t *most) {
  uint8_t a = *least, b = *most;
  for (int i = 0; i < n; i++) {
    a = p[i] < a ? p[i] : a;
    b = p[i] > b ? p[i] : b;
  }
  *least = a;
  *most = b;
}

static void weigh(float *restrict sum, const uint8_t *restrict p, int n, float w, int begin) {
  if (begin)
    for (int i = 0; i < n; i++) sum[i] = (float)p[i] * w;
  else
    for (int i = 0; i < n; i++) sum[i] += (float)p[i] * w;
}

static void levels(const float *restrict sum, uint8_t *restrict out, int n) {
  for (int i = 0; i < n; i++) out[i] = stk_level(sum[i]);
}

const stk_colours STK_COLOURS = {table, mask, flat_luma, blend, hue, sharpen, fold, settle, normals, sum, range, weigh, levels};
