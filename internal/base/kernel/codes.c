// The best Huffman code for counts, no code longer than 16 bits and none of
// ones only, as JPEG wants it.
//
// Lengths are Huffman's (1952), by the two queues of van Leeuwen (1976): leaves
// in rising order, and the sums, which come in rising order by themselves. Codes
// that are too long are shortened as in figure K.3 of the standard. A leaf of
// the least count that stands for nothing takes the code of ones.
#include "index.h"

#include <stdlib.h>

enum { LONGEST = 64 };  // depth n needs a sum of at least the n-th Fibonacci number

typedef struct {
  int64_t count;
  int symbol;  // -1: the leaf that stands for no symbol
} leaf;

static int by_count(const void *a, const void *b) {
  const leaf *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? -1 : 1;
  return x->symbol < 0 ? -1 : y->symbol < 0 ? 1 : y->symbol - x->symbol;
}

// depths counts the leaves at each depth.
static void depths(const leaf *leaves, int n, int *of_depth) {
  int64_t sum[257];
  int up[2 * 257], depth[257];
  int next_leaf = 0, next_sum = 0;
  for (int s = 0; s < n - 1; s++) {
    sum[s] = 0;
    for (int i = 0; i < 2; i++) {
      if (next_sum == s || (next_leaf < n && leaves[next_leaf].count <= sum[next_sum])) {
        sum[s] += leaves[next_leaf].count;
        up[next_leaf++] = s;
      } else {
        sum[s] += sum[next_sum];
        up[n + next_sum++] = s;
      }
    }
  }
  depth[n - 2] = 0;
  for (int s = n - 3; s >= 0; s--) depth[s] = depth[up[n + s]] + 1;
  for (int i = 0; i < n; i++) of_depth[depth[up[i]] + 1]++;
}

static void shorten(int *of_depth) {
  for (int i = LONGEST; i > 16; i--)
    while (of_depth[i] > 0) {
      int j = i - 2;
      while (of_depth[j] == 0) j--;
      of_depth[i] -= 2;
      of_depth[i - 1]++;
      of_depth[j + 1] += 2;
      of_depth[j]--;
    }
}

void stk_code_make(stk_code *c, const int64_t *count, int n) {
  leaf leaves[257] = {{1, -1}};
  int used = 1, of_depth[LONGEST + 1] = {0};
  for (int s = 0; s < n; s++)
    if (count[s]) leaves[used++] = (leaf){count[s], s};
  memset(c, 0, sizeof *c);
  if (used == 1) leaves[used++] = (leaf){1, 0};  // a table needs at least one code
  qsort(leaves, (size_t)used, sizeof *leaves, by_count);
  depths(leaves, used, of_depth);
  shorten(of_depth);
  int longest = 16;
  while (of_depth[longest] == 0) longest--;
  of_depth[longest]--;
  for (int i = 1; i <= 16; i++) c->bits[i] = (uint8_t)of_depth[i];
  for (int i = used - 1; i >= 0; i--)
    if (leaves[i].symbol >= 0) c->values[c->n++] = (uint8_t)leaves[i].symbol;
  uint32_t code = 0;
  for (int len = 1, at = 0; len <= 16; len++, code <<= 1)
    for (int i = 0; i < c->bits[len]; i++, code++, at++) {
      const int size = c->values[at] & 15;
      c->put[c->values[at]] = (uint64_t)(len + size) << 32 | (uint64_t)code << size;
    }
}

int64_t stk_code_bits(const stk_code *c, const int64_t *count) {
  int64_t bits = 0;
  for (int i = 0; i < c->n; i++) bits += count[c->values[i]] * (int64_t)(c->put[c->values[i]] >> 32);
  return bits;
}
