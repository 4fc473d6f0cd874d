// The fuzzer of the JPEG decoder with libFuzzer's guidance by coverage (clang only).
//
// An input is eight bytes that choose the region, the position in memory and the
// target, followed by a file. base.c makes the first files, and mutate.c changes them,
// alternating with libFuzzer's own changes; case.c compares with libjpeg. Any input may
// be damaged, so a refusal is not a finding here: main.c looks for wrong refusals.
//
// Lanes live for TOGETHER inputs. A finding that depends on what an earlier input left
// behind is not reproduced by its file alone.
#include "../fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 8 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  const char *folder = getenv("JPEG_FUZZ_OUT");
  case_start(folder ? folder : ".", 0, 0, 0);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t seed;
  if (size <= SEED) return -1;  // not kept
  memcpy(&seed, data, SEED);
  if (sum.cases % TOGETHER == 0) case_block();
  case_input(seed, data + SEED, size - SEED);
  if (sum.findings) abort();
  return 0;
}

// put replaces the file of an input where it fits.
static size_t put(uint8_t *data, size_t size, size_t most, const bytes *b) {
  if (b->n == 0 || b->n > most - SEED) return size;
  memcpy(data + SEED, b->p, b->n);
  return SEED + b->n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  static bytes b;
  rng r = {seed};
  char what[NOTE] = "";
  if (most <= SEED) return LLVMFuzzerMutate(data, size, most);
  b.n = 0;
  if (size <= SEED || one_in(&r, 64)) {  // a new file
    base_make(&r, &b, what);
    const uint64_t chosen = rnd(&r);
    memcpy(data, &chosen, SEED);
    return put(data, size > SEED ? size : SEED, most, &b);
  }
  if (one_in(&r, 8)) {  // the same file asked for otherwise
    const uint64_t chosen = rnd(&r);
    memcpy(data, &chosen, SEED);
    return size;
  }
  if (one_in(&r, 2)) return SEED + LLVMFuzzerMutate(data + SEED, size - SEED, most - SEED);
  bytes_put(&b, data + SEED, size - SEED);
  mutate(&r, &b, what);
  return put(data, size, most, &b);
}
