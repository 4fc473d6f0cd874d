// The command unpack-fuzz: the inflater, LZW and PNG's filters on damaged bytes, between guard
// pages, under AddressSanitizer and UBSan. What zlib unpacks must come out, and what zlib
// refuses must be refused.
//
//	unpack-fuzz -seed 7 -seconds 60
//
// It ends with a signal or status 1 where there is a finding, whose case it names; a case is
// made again by its seed and number.
#include "../../inflate.h"
#include "../../lzw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

size_t stk_unfilter(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n, size_t rows, size_t back);

enum { MOST = 1 << 18 };

static uint64_t state;

static uint32_t rnd(uint32_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(((state >> 33) * n) >> 31);
}

// room is n bytes that begin or end at a guard page.
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

static size_t data(uint8_t *p) {
  size_t n = 0, most = rnd(4) ? rnd(3000) : rnd(MOST / 2);
  const uint32_t values = 1 + rnd(256);
  while (n < most) {
    size_t run = 1 + rnd(600), from = 1 + rnd(rnd(3) ? 40 : 33000);
    if (run > most - n) run = most - n;
    if (rnd(2) && from <= n)
      for (; run; run--, n++) p[n] = p[n - from];
    else
      for (; run; run--, n++) p[n] = (uint8_t)(rnd(1 + rnd(values)));
  }
  return n;
}

static void harm(uint8_t *p, size_t *n) {
  if (*n && rnd(8) == 0) *n = rnd((uint32_t)*n + 1);
  for (uint32_t i = rnd(4) ? 1 + rnd(4) : 0; i && *n; i--) {
    uint8_t *q = p + rnd(rnd(2) && *n > 64 ? 64 : (uint32_t)*n);
    if (rnd(2)) *q ^= (uint8_t)(1u << rnd(8));
    else *q = (uint8_t)rnd(256);
  }
}

static void fail(const char *what) {
  fprintf(stderr, "unpack-fuzz: %s\n", what);
  exit(1);
}

static void inflate_case(const uint8_t *raw, size_t nraw, size_t n) {
  static uint8_t want[MOST];
  z_stream s = {.next_in = (Bytef *)raw, .avail_in = (uInt)nraw, .next_out = want, .avail_out = (uInt)n};
  if (inflateInit2(&s, -15) != Z_OK) abort();
  const int zlib = inflate(&s, Z_FINISH);
  const size_t got = s.total_out;
  inflateEnd(&s);
  for (int level = 0; level <= stk_inflate_level(); level++)
    for (int slack = 0; slack <= STK_INFLATE_SLACK; slack += STK_INFLATE_SLACK) {
      static stk_inflate z;
      z.in = z.out = z.bits = 0;
      z.n = z.mode = z.last = z.left = 0;
      const room in = room_of(nraw, level), out = room_of(n + (size_t)slack, !level);
      memcpy(in.p, raw, nraw);
      const int code = stk_inflate_run(&z, in.p, nraw, out.p, n + (size_t)slack, n + 1, level);
      if ((code == STK_INFLATE_END && z.out <= n) != (zlib == Z_STREAM_END)) fail("zlib does not agree that the stream is whole");
      if (zlib == Z_STREAM_END && (z.out != got || memcmp(out.p, want, got))) fail("zlib has other bytes");
      if (z.in > nraw || z.out > n + (size_t)slack) fail("more was taken or made than there is");
      give(in);
      give(out);
    }
}

static void lzw_case(const uint8_t *raw, size_t nraw) {
  static stk_lzw t;
  const size_t n = rnd(5000);
  const room in = room_of(nraw, (int)rnd(2)), out = room_of(n, (int)rnd(2));
  size_t got = 0;
  memcpy(in.p, raw, nraw);
  const int tiff = (int)rnd(2), bits = 1 + (int)rnd(8);
  if (tiff && nraw > 1) in.p[0] = 0x80, in.p[1] &= 0x7f;
  stk_lzw_decode(&t, out.p, n, &got, in.p, nraw, tiff ? 8 : bits, tiff);
  if (got > n) fail("LZW made more than there is room for");
  give(in);
  give(out);
}

static void unfilter_case(const uint8_t *raw, size_t nraw) {
  static const size_t backs[] = {1, 2, 3, 4, 6, 8};
  const size_t back = backs[rnd(6)], n = back * (1 + rnd(60)), rows = nraw / (n + 1);
  if (!rows) return;
  const room in = room_of(rows * (n + 1), (int)rnd(2)), out = room_of(rows * n, (int)rnd(2)), up = room_of(n + 8, (int)rnd(2));
  memcpy(in.p, raw, rows * (n + 1));
  for (size_t y = 0; y < rows; y++)
    if (rnd(50)) in.p[y * (n + 1)] %= 5;
  if (stk_unfilter(out.p, in.p, up.p, n, rows, back) > rows) fail("more rows than there are");
  give(in);
  give(out);
  give(up);
}

int main(int argc, char **argv) {
  uint64_t seed = 1;
  double seconds = 10;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-seed")) seed = strtoull(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "-seconds")) seconds = atof(argv[i + 1]);
  }
  static uint8_t plain[MOST], packed[MOST];
  const time_t stop = time(NULL) + (time_t)seconds;
  uint64_t n = 0;
  for (; time(NULL) < stop; n++) {
    state = (seed << 40) + n * 2654435761u;
    for (int i = 0; i < 4; i++) rnd(2);
    const size_t size = data(plain);
    z_stream s = {.next_in = plain, .avail_in = (uInt)size, .next_out = packed, .avail_out = MOST};
    if (deflateInit2(&s, (int)rnd(10), Z_DEFLATED, -15, 1 + (int)rnd(9), (int)rnd(5)) != Z_OK) abort();
    deflate(&s, Z_FINISH);
    size_t npacked = s.total_out;
    deflateEnd(&s);
    harm(packed, &npacked);
    inflate_case(packed, npacked, rnd(4) ? size : rnd((uint32_t)size + 9));
    lzw_case(packed, npacked < 6000 ? npacked : 6000);
    unfilter_case(packed, npacked < 20000 ? npacked : 20000);
  }
  printf("unpack-fuzz: %llu cases of seed %llu, no finding\n", (unsigned long long)n, (unsigned long long)seed);
  return 0;
}
