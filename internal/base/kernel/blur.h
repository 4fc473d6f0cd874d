// The loops of blurring, over rows of values in 128ths: colour_avx2.c and colour_avx512.c
// compile them with vectors of 16 bits, by the names below, and colour_base.c has them in
// plain C. at has the middle row and then r pairs of rows that have the same weight, in
// 65536ths. Each product is cut to 128ths. All rows are read, and written, up to 4 vectors
// past n.
static inline __attribute__((always_inline)) void weighed(const uint16_t *const *at, const uint16_t *w, int r, int i, vec s[4]) {
  const uint16_t *a = at[0] + i;
  vec wk = SPREAD((int16_t)w[0]);
  for (int j = 0; j < 4; j++) s[j] = MULTIPLY(LOAD(a + j * LANES), wk);
  for (int k = 1; k <= r; k++) {
    a = at[2 * k - 1] + i;
    const uint16_t *b = at[2 * k] + i;
    wk = SPREAD((int16_t)w[k]);
    for (int j = 0; j < 4; j++) s[j] = ADD(s[j], MULTIPLY(ADD(LOAD(a + j * LANES), LOAD(b + j * LANES)), wk));
  }
}

static void fold(const uint16_t *const *at, const uint16_t *w, int r, int n, uint16_t *out) {
  for (int i = 0; i < n; i += 4 * LANES) {
    vec s[4];
    weighed(at, w, r, i, s);
    for (int j = 0; j < 4; j++) STORE(out + i + j * LANES, s[j]);
  }
}

static void settle(const uint16_t *const *at, const uint16_t *w, int r, int n, int half, uint8_t *out) {
  const vec more = SPREAD((int16_t)half);
  for (int i = 0; i < n; i += 4 * LANES) {
    vec s[4];
    weighed(at, w, r, i, s);
    for (int j = 0; j < 4; j++) s[j] = SHIFT(ADD(s[j], more), 7);
    NARROW(out + i, s[0], s[1]);
    NARROW(out + i + 2 * LANES, s[2], s[3]);
  }
}
