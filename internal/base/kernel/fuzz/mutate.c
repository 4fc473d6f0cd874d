// Damage aimed at the parts of a file, and rearrangements that do no damage.
#include "fuzz.h"

#include <string.h>

// A part is a marker segment, or the entropy-coded data between two markers, for
// which marker is 0. It has n bytes from at on.
typedef struct {
  size_t at, n;
  int marker;
} part;

enum { PARTS = 400 };

typedef struct {
  part p[PARTS];
  int n, sof, sos, eoi;  // places in p, -1: none; of the last sos and the first frame header
  int data[PARTS], ndata, rst[PARTS], nrst;
} parts;

static void add(parts *s, size_t at, size_t n, int marker) {
  if (s->n == PARTS) return;
  if (marker == 0) s->data[s->ndata++] = s->n;
  if (marker >= 0xd0 && marker <= 0xd7) s->rst[s->nrst++] = s->n;
  if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xcc && s->sof < 0) s->sof = s->n;
  if (marker == 0xda) s->sos = s->n;
  if (marker == 0xd9) s->eoi = s->n;
  s->p[s->n++] = (part){at, n, marker};
}

// split finds the parts; in damaged bytes, whatever looks like parts.
static void split(parts *s, const bytes *b) {
  s->n = s->ndata = s->nrst = 0;
  s->sof = s->sos = s->eoi = -1;
  size_t at = 0;
  while (at + 1 < b->n && s->n < PARTS) {
    if (b->p[at] != 0xff || b->p[at + 1] == 0 || b->p[at + 1] == 0xff) {
      size_t to = at + 1;
      while (to < b->n && !(b->p[to] == 0xff && to + 1 < b->n && b->p[to + 1] != 0 && b->p[to + 1] != 0xff)) to++;
      add(s, at, to - at, 0);
      at = to;
      continue;
    }
    const int m = b->p[at + 1];
    size_t n = 2;
    if (!(m >= 0xd0 && m <= 0xd9) && m != 1 && at + 4 <= b->n) n += (size_t)(b->p[at + 2] << 8 | b->p[at + 3]);
    if (n > b->n - at) n = b->n - at;
    add(s, at, n, m);
    at += n;
  }
}

static int find(const parts *s, rng *r, int marker) {
  int got = -1, n = 0;
  for (int i = 0; i < s->n; i++)
    if (s->p[i].marker == marker && one_in(r, (uint32_t)++n)) got = i;
  return got;
}

// in_data is a position in entropy-coded data, or anywhere.
static size_t in_data(const parts *s, const bytes *b, rng *r) {
  if (s->ndata) {
    const part *p = &s->p[s->data[below(r, (uint32_t)s->ndata)]];
    return p->at + below(r, (uint32_t)p->n);
  }
  return below(r, (uint32_t)b->n);
}

static size_t in_header(const parts *s, const bytes *b, rng *r) {
  const int upto = s->sos >= 0 ? s->sos + 1 : s->n;
  if (!upto) return below(r, (uint32_t)b->n);
  const part *p = &s->p[below(r, (uint32_t)upto)];
  return p->at + below(r, (uint32_t)(one_in(r, 2) && p->n > 24 ? 24 : p->n));
}

static uint8_t interesting(rng *r) {
  static const uint8_t v[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 0x11, 0x1f, 0x22, 0x3f, 0x40, 0x41, 0x7f, 0x80, 0xc4, 0xd0, 0xd9, 0xda, 0xf0, 0xfe, 0xff};
  return one_in(r, 3) ? (uint8_t)rnd(r) : v[below(r, sizeof v)];
}

// The damage. Each function gets the current parts and changes b.

static void flip_data(rng *r, bytes *b, parts *s) {
  for (int n = one_in(r, 2) ? 1 : among(r, 1, 8); n > 0; n--) b->p[in_data(s, b, r)] ^= (uint8_t)(1u << below(r, 8));
}

static void write_data(rng *r, bytes *b, parts *s) {
  for (int n = one_in(r, 2) ? 1 : among(r, 1, 6); n > 0; n--) b->p[in_data(s, b, r)] = interesting(r);
}

static void flip_header(rng *r, bytes *b, parts *s) {
  for (int n = among(r, 1, 2); n > 0; n--) b->p[in_header(s, b, r)] ^= (uint8_t)(1u << below(r, 8));
}

static void write_header(rng *r, bytes *b, parts *s) { b->p[in_header(s, b, r)] = interesting(r); }

static void insert_data(rng *r, bytes *b, parts *s) {
  uint8_t junk[8];
  for (size_t i = 0; i < sizeof junk; i++) junk[i] = interesting(r);
  bytes_splice(b, in_data(s, b, r), 0, junk, (size_t)among(r, 1, 8));
}

static void delete_data(rng *r, bytes *b, parts *s) {
  const size_t at = in_data(s, b, r), n = (size_t)(one_in(r, 3) ? among(r, 1, 200) : among(r, 1, 4));
  bytes_splice(b, at, n < b->n - at ? n : b->n - at, NULL, 0);
}

// copy_data copies some of the data over or between other data.
static void copy_data(rng *r, bytes *b, parts *s) {
  const size_t from = in_data(s, b, r), to = in_data(s, b, r);
  size_t n = (size_t)among(r, 1, 60);
  if (n > b->n - from) n = b->n - from;
  size_t over = one_in(r, 2) ? n : 0;
  if (over > b->n - to) over = b->n - to;
  bytes_splice(b, to, over, b->p + from, n);
}

static void fill_data(rng *r, bytes *b, parts *s) {
  const size_t at = in_data(s, b, r);
  size_t n = (size_t)(one_in(r, 2) ? among(r, 1, 8) : among(r, 1, 300));
  const uint8_t v = one_in(r, 2) ? 0 : one_in(r, 2) ? 0xff : (uint8_t)rnd(r);
  if (n > b->n - at) n = b->n - at;
  for (size_t i = 0; i < n; i++) b->p[at + i] = v == 0xff && i % 2 ? 0 : v;
}

static void cut(rng *r, bytes *b, parts *s) {
  static const uint8_t eoi[2] = {0xff, 0xd9};
  const size_t at = one_in(r, 4) ? below(r, (uint32_t)b->n) : one_in(r, 2) ? in_data(s, b, r) : b->n - below(r, b->n < 20 ? (uint32_t)b->n : 20);
  b->n = at;
  if (!one_in(r, 3)) bytes_put(b, eoi, 2);
  if (b->n == 0) bytes_put(b, eoi, 1);
}

static void drop_end(rng *r, bytes *b, parts *s) {
  (void)r;
  if (s->eoi > 0) bytes_splice(b, s->p[s->eoi].at, 2, NULL, 0);
}

static void delete_part(rng *r, bytes *b, parts *s) {
  const part *p = &s->p[below(r, (uint32_t)s->n)];
  if (p->n < b->n) bytes_splice(b, p->at, p->n, NULL, 0);
}

static void duplicate_part(rng *r, bytes *b, parts *s) {
  const part *p = &s->p[below(r, (uint32_t)s->n)], *q = &s->p[below(r, (uint32_t)s->n)];
  bytes_splice(b, one_in(r, 2) ? p->at : q->at, 0, b->p + p->at, p->n);
}

static void move_part(rng *r, bytes *b, parts *s) {
  const part *p = &s->p[below(r, (uint32_t)s->n)], *q = &s->p[below(r, (uint32_t)s->n)];
  if (p == q) return;
  bytes_splice(b, q->at, 0, b->p + p->at, p->n);
  bytes_splice(b, p->at + (q->at <= p->at ? p->n : 0), p->n, NULL, 0);
}

static void lie_about_length(rng *r, bytes *b, parts *s) {
  const part *p = &s->p[below(r, (uint32_t)s->n)];
  if (p->marker == 0 || p->n < 4) return;
  int n = b->p[p->at + 2] << 8 | b->p[p->at + 3];
  switch (below(r, 5)) {
  case 0: n = among(r, 0, 3); break;
  case 1: n = among(r, 0, 65535); break;
  case 2: n = 65535; break;
  default: n += among(r, -20, 20);
  }
  b->p[p->at + 2] = (uint8_t)(n >> 8);
  b->p[p->at + 3] = (uint8_t)n;
}

// bend_table gives a Huffman table too many codes, too few, or different ones.
static void bend_table(rng *r, bytes *b, parts *s) {
  const int i = find(s, r, 0xc4);
  if (i < 0 || s->p[i].n < 21) return;
  uint8_t *t = b->p + s->p[i].at + 4;
  switch (below(r, 5)) {
  case 0:
    t[1 + below(r, 16)] += (uint8_t)among(r, 1, 3);
    break;
  case 1:
    t[1 + below(r, 16)] = interesting(r);
    break;
  case 2: {  // one more code of one length, one less of another: the same total length
    uint8_t *from = &t[1 + below(r, 16)], *to = &t[1 + below(r, 16)];
    if (*from) --*from, ++*to;
    break;
  }
  case 3:
    t[0] = (uint8_t)(one_in(r, 2) ? t[0] ^ 0x10 : interesting(r));
    break;
  default:
    for (size_t k = 1; k <= 16; k++) t[k] = k == 16 ? 255 : 0;
  }
}

// bend_symbols gives codes different meanings: long runs, sizes that do not exist.
static void bend_symbols(rng *r, bytes *b, parts *s) {
  static const uint8_t v[] = {0x00, 0xf0, 0xf1, 0xfa, 0xe1, 0x10, 0x70, 0x0f, 0xff, 0x0b, 0x0c, 0x1f, 0x10, 0xe0};
  const int i = find(s, r, 0xc4);
  if (i < 0 || s->p[i].n < 22) return;
  for (int n = among(r, 1, 12); n > 0; n--)
    b->p[s->p[i].at + 21 + below(r, one_in(r, 2) && s->p[i].n > 30 ? 8 : (uint32_t)s->p[i].n - 21)] = v[below(r, sizeof v)];
}

static void bend_frame(rng *r, bytes *b, parts *s) {
  if (s->sof < 0 || s->p[s->sof].n < 12) return;
  uint8_t *f = b->p + s->p[s->sof].at;
  const size_t n = s->p[s->sof].n;
  switch (below(r, 8)) {
  case 0: f[5] = f[6] = 0; break;                                    // no height
  case 1: f[7] = f[8] = 0; break;
  case 2: f[5 + 2 * below(r, 2)] = interesting(r); break;            // hundreds of pixels more
  case 3: f[6 + 2 * below(r, 2)] = (uint8_t)rnd(r); break;
  case 4: f[1] = (uint8_t)(0xc0 + below(r, 16)); break;
  case 5: f[4] = (uint8_t)(one_in(r, 2) ? 12 : interesting(r)); break;
  case 6: f[9] = (uint8_t)among(r, 0, 5); break;
  default: f[10 + below(r, (uint32_t)n - 10)] = one_in(r, 2) ? (uint8_t)(among(r, 1, 4) << 4 | among(r, 1, 4)) : interesting(r);
  }
}

static void bend_scan(rng *r, bytes *b, parts *s) {
  if (s->sos < 0 || s->p[s->sos].n < 8) return;
  uint8_t *f = b->p + s->p[s->sos].at;
  f[4 + below(r, (uint32_t)s->p[s->sos].n - 4)] = interesting(r);
}

static void insert_segment(rng *r, bytes *b, parts *s) {
  static const uint8_t kinds[] = {0xdc, 0xdd, 0xdb, 0xc4, 0xda, 0xc0, 0xc2, 0xee, 0xe0, 0xd8, 0xd9, 0xcc, 0xde, 0x01, 0x02, 0xf7, 0xc8};
  uint8_t seg[40];
  const int n = among(r, 0, 36);
  for (size_t i = 0; i < sizeof seg; i++) seg[i] = interesting(r);
  seg[0] = 0xff;
  seg[1] = kinds[below(r, sizeof kinds)];
  seg[2] = 0;
  seg[3] = (uint8_t)(n + 2);
  size_t len = (size_t)n + 4;
  if (seg[1] == 0xdc || seg[1] == 0xdd) seg[3] = 4, seg[4] = 0, seg[5] = (uint8_t)rnd(r), len = 6;
  if (seg[1] == 0xee) {  // Adobe's, of any transform
    memcpy(seg + 2, "\0\16Adobe\0d\0\0\0\0", 13);
    seg[15] = (uint8_t)among(r, 0, 4);
    len = 16;
  }
  bytes_splice(b, one_in(r, 3) ? in_data(s, b, r) : s->p[below(r, (uint32_t)s->n)].at, 0, seg, len);
}

static void insert_marker(rng *r, bytes *b, parts *s) {
  const uint8_t m[2] = {0xff, (uint8_t)(one_in(r, 2) ? 0xd0 + below(r, 10) : 1 + below(r, 254))};
  bytes_splice(b, in_data(s, b, r), 0, m, 2);
}

static void bend_restarts(rng *r, bytes *b, parts *s) {
  static const uint8_t none = 0xff;
  if (!s->nrst) {
    insert_marker(r, b, s);
    return;
  }
  const int k = (int)below(r, (uint32_t)s->nrst), l = (int)below(r, (uint32_t)s->nrst);
  const part *p = &s->p[s->rst[k]], *q = &s->p[s->rst[l]];
  switch (below(r, 8)) {
  case 0: b->p[p->at + 1] = (uint8_t)(0xd0 + below(r, 8)); break;
  case 1: bytes_splice(b, p->at, 2, NULL, 0); break;
  case 2: bytes_splice(b, p->at, 0, b->p + p->at, 2); break;
  case 3: {
    const uint8_t t = b->p[p->at + 1];
    b->p[p->at + 1] = b->p[q->at + 1];
    b->p[q->at + 1] = t;
    break;
  }
  case 4:  // segments gone, among them whole rounds, after which the numbers agree
    if (p->at < q->at) bytes_splice(b, p->at, q->at - p->at, NULL, 0);
    break;
  case 5:
    if (k + 8 < s->nrst) bytes_splice(b, p->at, s->p[s->rst[k + 8]].at - p->at, NULL, 0);
    break;
  case 6:
    if (p->at < q->at) bytes_splice(b, q->at, 0, b->p + p->at, q->at - p->at);
    break;
  default: bytes_splice(b, p->at, 0, &none, 1);
  }
}

static void bend_interval(rng *r, bytes *b, parts *s) {
  uint8_t seg[6] = {0xff, 0xdd, 0, 4, 0, (uint8_t)among(r, 0, 40)};
  const int i = find(s, r, 0xdd);
  if (one_in(r, 8)) seg[4] = interesting(r);
  if (i >= 0)
    bytes_splice(b, s->p[i].at, s->p[i].n, seg, one_in(r, 4) ? 0 : 6);
  else if (s->sos >= 0)
    bytes_splice(b, s->p[s->sos].at, 0, seg, 6);
}

static void second_picture(rng *r, bytes *b, parts *s) {
  (void)s;
  bytes_put(b, b->p, one_in(r, 2) ? b->n : below(r, (uint32_t)b->n));
}

static void early_end(rng *r, bytes *b, parts *s) {
  static const uint8_t eoi[2] = {0xff, 0xd9};
  const size_t at = in_data(s, b, r);
  bytes_splice(b, at, one_in(r, 2) && at + 2 <= b->n ? 2 : 0, eoi, 2);
}

static void fill_in_data(rng *r, bytes *b, parts *s) {
  static const uint8_t ff[4] = {0xff, 0xff, 0xff, 0xff};
  bytes_splice(b, in_data(s, b, r), 0, ff, (size_t)among(r, 1, 4));
}

typedef struct {
  const char *name;
  void (*run)(rng *r, bytes *b, parts *s);
  int weight;
} way;

static const way damages[] = {
    {"flip data", flip_data, 14},       {"write data", write_data, 6},       {"flip header", flip_header, 8},
    {"write header", write_header, 8},  {"insert data", insert_data, 4},     {"delete data", delete_data, 4},
    {"copy data", copy_data, 4},        {"fill data", fill_data, 4},         {"cut", cut, 5},
    {"drop end", drop_end, 2},          {"delete part", delete_part, 4},     {"duplicate part", duplicate_part, 4},
    {"move part", move_part, 4},        {"wrong length", lie_about_length, 5},
    {"bend table", bend_table, 5},      {"bend symbols", bend_symbols, 6},   {"bend frame", bend_frame, 6},
    {"bend scan", bend_scan, 3},        {"insert segment", insert_segment, 4},
    {"insert marker", insert_marker, 4}, {"bend restarts", bend_restarts, 10}, {"bend interval", bend_interval, 3},
    {"second picture", second_picture, 1}, {"early end", early_end, 3},      {"fill in data", fill_in_data, 3},
};

// The rearrangements: the picture stays the same.

// a_segment is a position where segments may be: between the start and the scan.
static int a_segment(const parts *s, rng *r) {
  return s->sos >= 2 && s->p[0].marker == 0xd8 ? among(r, 1, s->sos) : -1;
}

static void fill_before_marker(rng *r, bytes *b, parts *s) {
  static const uint8_t ff[5] = {0xff, 0xff, 0xff, 0xff, 0xff};
  const int i = one_in(r, 2) ? a_segment(s, r) : s->eoi > 0 ? s->eoi : -1;
  if (i > 0) bytes_splice(b, s->p[i].at, 0, ff, (size_t)among(r, 1, 5));
}

static void fill_before_restart(rng *r, bytes *b, parts *s) {
  static const uint8_t ff[3] = {0xff, 0xff, 0xff};
  if (s->nrst) bytes_splice(b, s->p[s->rst[below(r, (uint32_t)s->nrst)]].at, 0, ff, (size_t)among(r, 1, 3));
}

static void app_segment(rng *r, bytes *b, parts *s) {
  uint8_t seg[120];
  const int i = a_segment(s, r), n = among(r, 0, 116);
  for (size_t k = 0; k < sizeof seg; k++) seg[k] = one_in(r, 3) ? 0xff : interesting(r);
  seg[0] = 0xff;
  seg[1] = (uint8_t)(one_in(r, 3) ? 0xfe : 0xe1 + below(r, 13));
  seg[2] = 0;
  seg[3] = (uint8_t)(n + 2);
  if (i > 0) bytes_splice(b, s->p[i].at, 0, seg, (size_t)n + 4);
}

static void behind_end(rng *r, bytes *b, parts *s) {
  uint8_t junk[60];
  (void)s;
  for (size_t k = 0; k < sizeof junk; k++) junk[k] = one_in(r, 4) ? 0xff : interesting(r);
  for (size_t k = 1; k < sizeof junk; k++)
    if (junk[k - 1] == 0xff && junk[k] == 0xd9) junk[k] = 0xd8;  // the end marker is the last one
  bytes_put(b, junk, (size_t)among(r, 1, sizeof junk));
}

// table_length is the length of the table at t, in a segment of n bytes from there;
// 0: broken.
static size_t table_length(const uint8_t *t, size_t n, int huffman) {
  size_t len = huffman ? 17 : t[0] >> 4 ? 129 : 65;
  if (huffman && n >= 17)
    for (int i = 1; i <= 16; i++) len += t[i];
  return len <= n ? len : 0;
}

// divide ends a segment of tables after one of them, and begins another.
static void divide(rng *r, bytes *b, parts *s) {
  const int huffman = one_in(r, 2), i = find(s, r, huffman ? 0xc4 : 0xdb);
  if (i < 0) return;
  const size_t at = s->p[i].at, n = s->p[i].n;
  const size_t len = n > 4 ? table_length(b->p + at + 4, n - 4, huffman) : 0;
  if (!len || len + 4 == n) return;
  const uint8_t head[4] = {0xff, (uint8_t)(huffman ? 0xc4 : 0xdb), (uint8_t)((n - 2 - len) >> 8), (uint8_t)(n - 2 - len)};
  b->p[at + 2] = (uint8_t)((len + 2) >> 8);
  b->p[at + 3] = (uint8_t)(len + 2);
  bytes_splice(b, at + 4 + len, 0, head, 4);
}

// join joins two segments of tables that follow each other.
static void join(rng *r, bytes *b, parts *s) {
  for (int k = 0, i = 1 + (int)below(r, (uint32_t)s->n); k < s->n; k++, i++) {
    const part *p = &s->p[i % s->n];
    const int next = i % s->n + 1;
    if (next >= s->n || s->p[next].marker != p->marker || (p->marker != 0xc4 && p->marker != 0xdb)) continue;
    const size_t len = p->n - 2 + s->p[next].n - 4;
    if (p->n < 4 || s->p[next].n < 4 || len > 65535) continue;
    b->p[p->at + 2] = (uint8_t)(len >> 8);
    b->p[p->at + 3] = (uint8_t)len;
    bytes_splice(b, s->p[next].at, 4, NULL, 0);
    return;
  }
}

// redefine inserts another table before the valid one, or the same one twice.
static void redefine(rng *r, bytes *b, parts *s) {
  const int huffman = one_in(r, 2), i = find(s, r, huffman ? 0xc4 : 0xdb);
  if (i < 0) return;
  const size_t at = s->p[i].at, n = s->p[i].n;
  bytes_splice(b, at, 0, b->p + at, n);
  if (huffman || n < 6 || (n - 4) % 65 || b->p[at + 4] >> 4) return;  // of 8 bits
  for (size_t k = 5; k < n - 4; k += 1 + below(r, 8))
    if (k % 65) b->p[at + 4 + k] = (uint8_t)(1 + below(r, 255));
}

// widen writes a quantisation table with 16 bits, and declares that in the frame
// header.
static void widen(rng *r, bytes *b, parts *s) {
  const int i = find(s, r, 0xdb);
  if (i < 0 || s->p[i].n != 69 || b->p[s->p[i].at + 4] >> 4 || s->sof < 0) return;
  uint8_t wide[128];
  uint8_t *t = b->p + s->p[i].at;
  for (int k = 0; k < 64; k++) wide[2 * k] = 0, wide[2 * k + 1] = t[5 + k];
  t[3] = 131;
  t[4] |= 0x10;
  if (b->p[s->p[s->sof].at + 1] == 0xc0) b->p[s->p[s->sof].at + 1] = 0xc1;
  bytes_splice(b, s->p[i].at + 5, 64, wide, 128);
}

static const way arrangements[] = {
    {"fill before a marker", fill_before_marker, 3}, {"fill before a restart", fill_before_restart, 3},
    {"segment more", app_segment, 3},                {"after the end", behind_end, 3},
    {"tables divided", divide, 3},                   {"tables joined", join, 2},
    {"tables redefined", redefine, 2},               {"16-bit table", widen, 2},
};

static void apply(rng *r, bytes *b, char *what, const way *w, int n) {
  static parts s;
  int all = 0;
  for (int i = 0; i < n; i++) all += w[i].weight;
  int k = (int)below(r, (uint32_t)all);
  while (k >= w->weight) k -= (w++)->weight;
  split(&s, b);
  if (s.n == 0 || b->n == 0) return;
  w->run(r, b, &s);
  note(what, "; %s", w->name);
}

int mutate(rng *r, bytes *b, char *what) {
  const int kind = (int)below(r, 16);
  for (int n = kind < 4 ? among(r, 1, 3) : 0; n > 0; n--) apply(r, b, what, arrangements, sizeof arrangements / sizeof *arrangements);
  if (kind < 3) return 0;
  int n = 1;
  while (n < 5 && one_in(r, 3)) n++;
  for (; n > 0; n--) apply(r, b, what, damages, sizeof damages / sizeof *damages);
  return 1;
}
