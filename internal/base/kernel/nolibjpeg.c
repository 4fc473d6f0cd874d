//go:build !stoker_libjpeg

// Replaces libjpeg.c and coefficients.c if libjpeg-turbo is not built in: pictures
// that jpeg.c does not accept are left to Go. Functions for a picture that is open
// are never called here.
#include "index.h"

void stk_libjpeg_open(stk_lane *l, const uint8_t *p, size_t n) {
  (void)p;
  (void)n;
  stk_fail(l, STK_ELSEWHERE, "libjpeg-turbo is not built in");
}

int stk_libjpeg_region(stk_lane *l, int x0, int y0, int x1, int shift, int *row_pixels) {
  (void)y0;
  (void)shift;
  *row_pixels = x1 - x0;
  stk_libjpeg_open(l, NULL, 0);
  return 0;
}

void stk_libjpeg_rows(stk_lane *l, uint8_t **rows, int n) {
  (void)rows;
  stk_libjpeg_open(l, NULL, (size_t)n);
}

void stk_libjpeg_end(stk_lane *l) { stk_libjpeg_open(l, NULL, 0); }
void stk_libjpeg_close(stk_lane *l) { (void)l; }
void stk_libjpeg_free(stk_lane *l) { (void)l; }
void stk_coefficients_begin(stk_index *x) { stk_libjpeg_open(x->l, NULL, 0); }
void stk_coefficients_band(stk_index *x) { stk_libjpeg_open(x->l, NULL, 0); }
