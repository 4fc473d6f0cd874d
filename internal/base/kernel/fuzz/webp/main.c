// The command webp-fuzz: our decoder of lossy WebP against libwebp's. Pictures are drawn, and
// encoded with drawn settings; most streams are then damaged. Both must say the same: the same
// pixels, or that there are none. Input and output are between guard pages.
//
//	webp-fuzz -seed 7 -seconds 60
//	webp-fuzz -seed 7 -case 1234    one of them
//
// It ends with a signal or status 1 where there is a finding, which it names by its case.
#include "../../vp8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <webp/decode.h>
#include <webp/encode.h>

static uint64_t state;

static uint32_t rnd(uint32_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(((state >> 33) * n) >> 31);
}

typedef struct {
  uint8_t *base, *p;
  size_t all;
} room;

static room room_of(size_t n, int low) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (n + page - 1) / page * page;
  room r = {.all = whole + 2 * page};
  r.base = mmap(NULL, r.all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (r.base == MAP_FAILED || (whole && mprotect(r.base + page, whole, PROT_READ | PROT_WRITE))) abort();
  r.p = low ? r.base + page : r.base + page + whole - n;
  return r;
}

static void give(room r) { munmap(r.base, r.all); }

static void draw(uint8_t *p, int w, int h) {
  const uint32_t kind = rnd(4), step = 1 + rnd(40);
  uint32_t colour = rnd(1 << 24);
  for (int i = 0; i < w * h; i++) {
    if (kind == 0 || rnd(step) == 0) colour = rnd(1 << 24);
    if (kind == 2) colour += rnd(3) * 0x010101;
    if (kind == 3) colour = (uint32_t)(i % w * 255 / w) << 16 | (uint32_t)(i / w * 255 / h) << 8 | (colour & 0xff);
    p[3 * i] = (uint8_t)(colour >> 16);
    p[3 * i + 1] = (uint8_t)(colour >> 8);
    p[3 * i + 2] = (uint8_t)colour;
  }
}

// encode returns the file; its VP8 chunk begins at byte 20.
static size_t encode(const uint8_t *rgb, int w, int h, uint8_t **out) {
  WebPConfig c;
  WebPPicture p;
  WebPMemoryWriter m;
  if (!WebPConfigInit(&c) || !WebPPictureInit(&p)) abort();
  WebPMemoryWriterInit(&m);
  c.quality = (float)rnd(101);
  c.method = (int)rnd(5);
  c.segments = 1 + (int)rnd(4);
  c.filter_strength = rnd(3) ? (int)rnd(101) : 0;
  c.filter_sharpness = (int)rnd(8);
  c.filter_type = (int)rnd(2);
  c.partitions = (int)rnd(4);
  c.pass = 1;
  p.width = w;
  p.height = h;
  p.writer = WebPMemoryWrite;
  p.custom_ptr = &m;
  if (!WebPPictureImportRGB(&p, rgb, 3 * w) || !WebPEncode(&c, &p)) abort();
  WebPPictureFree(&p);
  *out = m.mem;
  return m.size;
}

static void fail(uint64_t n, const char *what) {
  fprintf(stderr, "webp-fuzz: case %llu: %s\n", (unsigned long long)n, what);
  exit(1);
}

int main(int argc, char **argv) {
  uint64_t seed = 1, n = 0, whole = 0;
  uint64_t only = UINT64_MAX;
  double seconds = 10;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-seed")) seed = strtoull(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "-seconds")) seconds = atof(argv[i + 1]);
    else if (!strcmp(argv[i], "-case")) only = strtoull(argv[i + 1], NULL, 10);
  }
  const time_t stop = time(NULL) + (time_t)seconds;
  if (only != UINT64_MAX) n = only;
  for (; time(NULL) < stop && (only == UINT64_MAX || n == only); n++) {
    state = (seed << 40) + n * 2654435761u;
    for (int i = 0; i < 4; i++) rnd(2);
    const int w = 1 + (int)rnd(rnd(3) ? 50 : 140), h = 1 + (int)rnd(rnd(3) ? 50 : 140);
    uint8_t *picture = malloc((size_t)3 * w * h), *file;
    draw(picture, w, h);
    const size_t size = encode(picture, w, h, &file);
    if (size < 30 || memcmp(file + 12, "VP8 ", 4)) fail(n, "libwebp wrote something else");
    size_t k = (size_t)file[16] | (size_t)file[17] << 8 | (size_t)file[18] << 16;
    uint8_t *raw = file + 20;
    if (rnd(4))
      for (uint32_t i = 1 + rnd(4); i; i--) {
        const size_t at = rnd(3) ? rnd((uint32_t)k) : rnd((uint32_t)(k < 40 ? k : 40));
        if (at >= 6 && at < 10) continue; // the size
        if (rnd(2)) raw[at] ^= (uint8_t)(1u << rnd(8));
        else raw[at] = (uint8_t)rnd(256);
      }
    if (rnd(5) == 0) k = 10 + rnd((uint32_t)k - 9);
    uint8_t *want = calloc(3, (size_t)w * h);
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c)) abort();
    c.output.colorspace = MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = want;
    c.output.u.RGBA.stride = 3 * w;
    c.output.u.RGBA.size = (size_t)3 * w * h;
    const int theirs = WebPDecode(raw, k, &c);
    whole += theirs == VP8_STATUS_OK;
    for (int level = 0; level <= stk_vp8_level(); level++) {
      const room in = room_of(k, (int)(n & 1)), out = room_of((size_t)3 * w * h, (int)(n >> 1 & 1));
      memcpy(in.p, raw, k);
      const int ours = stk_vp8(out.p, in.p, k, w, h, level);
      if (ours != STK_VP8_ODD && (ours == STK_VP8_OK) != (theirs == VP8_STATUS_OK)) {
        fprintf(stderr, "libwebp %d, ours %d at level %d, %d x %d, %zu bytes\n", theirs, ours, level, w, h, k);
        fail(n, "one of both takes it");
      }
      for (int i = 0; ours == STK_VP8_OK && i < 3 * w * h; i++)
        if (out.p[i] != want[i]) {
          fprintf(stderr, "%d x %d at level %d: libwebp has %d at (%d, %d), channel %d, ours is %d\n", w, h, level, want[i], i / 3 % w, i / 3 / w, i % 3, out.p[i]);
          fail(n, "other pixels");
        }
      give(in);
      give(out);
    }
    free(want);
    free(picture);
    WebPFree(file);
  }
  printf("webp-fuzz: %llu cases of seed %llu, %llu of them pictures, no finding\n", (unsigned long long)n, (unsigned long long)seed,
         (unsigned long long)whole);
  return 0;
}
