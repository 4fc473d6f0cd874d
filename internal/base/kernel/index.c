// Rewriting a JPEG so that a region of it can be found: restart markers every few
// MCUs, and Huffman tables made for the picture, which compensate for their size.
// The coefficients do not change, and neither does any pixel.
//
// The interval is what is asked for, or the next longer one with which the file
// stays within its budget. It need not divide the row: a row then begins inside a
// segment, as regions do anyway. No table of segments is written: markers are found
// by scanning the bytes, at more than ten times the speed of anything else that is
// done with them (segment.c), and they cannot contradict the data as a table can.
#include "index.h"

#include <stdlib.h>

enum { MOST_TRIES = 32, KEEP = 32 << 20 };

// code_for makes the codes for a restart every interval MCUs (0: none), and returns
// the approximate size of the scan in bytes.
static int64_t code_for(stk_index *x, int interval) {
  int64_t count[CODES][16];
  memcpy(count, x->dc_total, sizeof count);
  int64_t segments = 0;
  for (int64_t m = interval; interval && m < x->mcus; m += interval, segments++)
    for (int i = 0; i < x->comps; i++) {
      const int first = x->edge[m * x->comps + i].first, before = x->edge[(m - 1) * x->comps + i].last;
      count[x->code_of[i]][stk_size(first - before)]--;
      count[x->code_of[i]][stk_size(first)]++;
    }
  int64_t bits = 0;
  for (int i = 0; i < x->codes; i++) {
    stk_code_make(&x->dc[i], count[i], 16);
    stk_code_make(&x->ac[i], x->ac_total[i], 256);
    bits += stk_code_bits(&x->dc[i], count[i]) + stk_code_bits(&x->ac[i], x->ac_total[i]);
  }
  x->restart = interval;
  // The markers, and the bits that fill their bytes; nothing for stuffing.
  return bits / 8 + segments * 5 / 2;
}

// intervals lists the intervals to try, the best first: by steps of an eighth up to
// two rows, then 0. A row is one of them: if regions are wide, beginning each row
// with a segment is worth more than a slightly shorter interval. A longer requested
// interval becomes a row.
static int intervals(const stk_index *x, int64_t wish, int *list) {
  const int64_t row = x->cols;
  int n = 0;
  for (int64_t d = wish < row ? wish : row; d < 2 * row && d < x->mcus && n < MOST_TRIES - 1;) {
    list[n++] = (int)d;
    const int64_t next = d + (d + 7) / 8;
    d = d < row && next > row ? row : next;
  }
  list[n++] = 0;
  return n;
}

// budget is how many bytes the new file may take. A progressive file, or one of
// several scans, is compared with its size as one scan without markers, including
// about one stuffed byte in 128, if that is larger.
static size_t budget(stk_index *x, const uint8_t *jpeg, size_t n, int sequential, int percent) {
  int64_t was = (int64_t)n;
  if (!sequential) {
    const int64_t scan = code_for(x, 0);
    stk_write_head(x, jpeg, n, sequential);
    const int64_t one = (int64_t)x->nout + scan + scan / 128;
    if (one > was) was = one;
  }
  return (size_t)(was + was * percent / 10000);
}

static void rewrite(stk_lane *l, const uint8_t *jpeg, size_t n, stk_rewrite *r) {
  l->job = (stk_job){.w = r->w, .h = r->h, .components = r->components};
  if (!l->index) {
    l->index = calloc(1, sizeof *l->index);
    if (!l->index) stk_fail(l, STK_MEMORY, "no memory for a JPEG to be rewritten");
  }
  stk_index *x = l->index;
  x->l = l;
  if (x->cap > KEEP) {  // the result of the call before is no longer valid
    free(x->out);
    x->out = NULL;
    x->cap = 0;
  }
  const int sequential = stk_frame_read(&x->f, jpeg, n);
  if (!sequential) stk_libjpeg_open(l, jpeg, n);
  stk_tokens_begin(x, !sequential, n);
  while (stk_tokens_band(x)) {
  }
  memcpy(x->dc_total, x->dc_count, sizeof x->dc_total);
  memcpy(x->ac_total, x->ac_count, sizeof x->ac_total);
  const size_t limit = budget(x, jpeg, n, sequential, r->percent);
  int list[MOST_TRIES];
  const int tries = intervals(x, r->wish, list);
  r->kept = 0;
  int64_t stuffing = 0;  // of this picture, approximately: known after a try that was too large
  for (int i = 0; i < tries; i++) {
    const int64_t scan = code_for(x, list[i]);
    stk_write_head(x, jpeg, n, sequential);
    const int64_t guess = (int64_t)x->nout + scan;
    // A guess that is too low costs a try; one that is too high costs the interval.
    if (list[i] && guess + stuffing - stuffing / 16 > (int64_t)limit) continue;
    // The last try of a file that was coded differently is accepted at any size.
    const int any = !sequential && !list[i];
    if (!stk_write_scan(x, any || !stuffing ? SIZE_MAX : limit)) continue;
    if (!any && x->nout > limit) {
      stuffing = (int64_t)x->nout - guess;
      continue;
    }
    r->restart = list[i];
    r->out = x->out;
    r->nout = x->nout;
    return;
  }
  r->kept = 1;
  r->restart = sequential ? x->f.restart : 0;
}

int stk_index_run(stk_lane *l, const uint8_t *jpeg, size_t n, stk_rewrite *r) {
  l->code = STK_OK;
  r->nout = 0;
  if (!setjmp(l->env)) rewrite(l, jpeg, n, r);
  stk_libjpeg_close(l);
  if (l->index) {
    stk_release(&l->index->b_tok);
    stk_release(&l->index->b_edge);
  }
  return l->code;
}

void stk_index_free(stk_index *x) {
  if (!x) return;
  free(x->b_tok.p);
  free(x->b_edge.p);
  free(x->out);
  free(x);
}
