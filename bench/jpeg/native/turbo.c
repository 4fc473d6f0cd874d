//go:build bench

// libjpeg-turbo as its users drive it for speed: one decompressor for all
// pictures, the accurate DCT and fancy upsampling, which are its defaults. A
// region is what it can do by itself: columns outside the box's MCUs and rows
// above it are skipped, and the picture is given up below it. Rows go where they
// belong at once; nothing is copied.
//
// By its own rule the samples at the sides of a region of subsampled colour are
// upsampled as if the picture ended there, and so differ a little from those of
// a crop. Decoding an MCU more, against that, would cost it time.
#include "turbo.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

enum { ROWS = 16 };

struct turbo {
  struct jpeg_decompress_struct c;
  struct jpeg_error_mgr err;
  jmp_buf failed;
  char message[JMSG_LENGTH_MAX];
};

static void on_error(j_common_ptr c) {
  turbo *t = (turbo *)c;
  t->err.format_message(c, t->message);
  longjmp(t->failed, 1);
}

static void on_output(j_common_ptr c) { (void)c; }

turbo *turbo_new(void) {
  turbo *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->c.err = jpeg_std_error(&t->err);
  t->err.error_exit = on_error;
  t->err.output_message = on_output;
  jpeg_create_decompress(&t->c);
  return t;
}

static void read_rows(j_decompress_ptr c, uint8_t *out, int n) {
  size_t stride = (size_t)c->output_width * 3;
  for (int done = 0; done < n;) {
    JSAMPROW rows[ROWS];
    int want = n - done < ROWS ? n - done : ROWS;
    for (int i = 0; i < want; i++) rows[i] = out + (done + i) * stride;
    done += jpeg_read_scanlines(c, rows, want);
  }
}

const char *turbo_decode(turbo *t, const uint8_t *jpeg, size_t n, turbo_box *box, uint8_t *out) {
  j_decompress_ptr c = &t->c;
  if (setjmp(t->failed)) {
    jpeg_abort_decompress(c);
    return t->message;
  }
  jpeg_mem_src(c, jpeg, n);
  jpeg_read_header(c, TRUE);
  c->out_color_space = JCS_RGB;
  jpeg_start_decompress(c);
  JDIMENSION left = 0, width = c->output_width;
  if (box->w < (int)width) {
    left = box->x;
    width = box->w;
    jpeg_crop_scanline(c, &left, &width);
  }
  if (box->y > 0) jpeg_skip_scanlines(c, box->y);
  read_rows(c, out, box->h);
  box->stride = (int)c->output_width * 3;
  box->first = (box->x - (int)left) * 3;
  if (c->output_scanline == c->output_height)
    jpeg_finish_decompress(c);
  else
    jpeg_abort_decompress(c);
  return NULL;
}

int turbo_version(void) { return LIBJPEG_TURBO_VERSION_NUMBER; }
