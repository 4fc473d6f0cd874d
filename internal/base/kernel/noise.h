// normals of noise.go: a row of n normal numbers, by the two words of its key. Plain C
// that compilers vectorise, included as colour.h is.
static inline uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x21f0aaadu;
  x = (x ^ x >> 15) * 0x735a2d97u;
  return x ^ x >> 15;
}

static inline float log_of(uint32_t v) {
  const float value = (float)(int32_t)v;
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
  bits -= (uint32_t)e << 23;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  f -= 1;
  const float n = (float)(e - 24);
  float y = f * 7.0376836292e-2f;
  y = (y + -1.1514610310e-1f) * f;
  y = (y + 1.1676998740e-1f) * f;
  y = (y + -1.2420140846e-1f) * f;
  y = (y + 1.4249322787e-1f) * f;
  y = (y + -1.6668057665e-1f) * f;
  y = (y + 2.0000714765e-1f) * f;
  y = (y + -2.4999993993e-1f) * f;
  const float z = f * f;
  y = (y + 3.3333331174e-1f) * f * z;
  y += n * -2.12194440e-4f;
  y -= 0.5f * z;
  return (f + y) + n * 0.693359375f;
}

static void normals(uint32_t low, uint32_t high, float *restrict out, float *restrict rest, int n) {
  for (int i = 0; i < n; i++) {
    const uint32_t a = scrambled(low + (uint32_t)i * 0x9e3779b9u), b = scrambled(high + (uint32_t)i * 0x9e3779b9u);
    const float r = __builtin_sqrtf(-2 * log_of((a >> 9) * 2 + 1));
    const float t = (float)(int32_t)(b >> 9) * (float)(3.14159265358979323846 / 4 / 8388608);
    const float z = t * t;
    const float s = ((z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f) * (z * t) + t;
    const float c = ((z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * (z * z) - 0.5f * z + 1;
    const int turned = (int)(b & 1);
    const float x = turned ? s : c, y = turned ? c : s;
    out[i] = r * (b & 2 ? -x : x);
    rest[i] = r * (b & 4 ? -y : y);
  }
}
