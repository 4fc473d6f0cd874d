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
//
// The library is the one linked in, or one of the same ABI (libjpeg.so.62) that
// is opened by its path: Python's wheels bring newer ones than Debian has.
#define _GNU_SOURCE
#include "turbo.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

enum { ROWS = 16 };

typedef struct {
  __typeof__(jpeg_std_error) *std_error;
  __typeof__(jpeg_CreateDecompress) *create;
  __typeof__(jpeg_mem_src) *mem_src;
  __typeof__(jpeg_read_header) *read_header;
  __typeof__(jpeg_start_decompress) *start;
  __typeof__(jpeg_crop_scanline) *crop;
  __typeof__(jpeg_skip_scanlines) *skip;
  __typeof__(jpeg_read_scanlines) *read;
  __typeof__(jpeg_finish_decompress) *finish;
  __typeof__(jpeg_abort_decompress) *abort;
} library;

static const library linked = {
    jpeg_std_error,     jpeg_CreateDecompress, jpeg_mem_src,       jpeg_read_header,       jpeg_start_decompress,
    jpeg_crop_scanline, jpeg_skip_scanlines,   jpeg_read_scanlines, jpeg_finish_decompress, jpeg_abort_decompress,
};

// open_library fills l with the functions of the library at path; it stays open. NULL if one is missing.
static const library *open_library(library *l, const char *path) {
  static const char *const names[] = {
      "jpeg_std_error",     "jpeg_CreateDecompress", "jpeg_mem_src",        "jpeg_read_header",       "jpeg_start_decompress",
      "jpeg_crop_scanline", "jpeg_skip_scanlines",   "jpeg_read_scanlines", "jpeg_finish_decompress", "jpeg_abort_decompress",
  };
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return NULL;
  void **slots = (void **)l;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(slots[i] = dlsym(handle, names[i]))) return NULL;
  return l;
}

struct turbo {
  struct jpeg_decompress_struct c;
  library own;
  const library *lib;
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

turbo *turbo_new(const char *path) {
  turbo *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->lib = path ? open_library(&t->own, path) : &linked;
  if (!t->lib) {
    free(t);
    return NULL;
  }
  t->c.err = t->lib->std_error(&t->err);
  t->err.error_exit = on_error;
  t->err.output_message = on_output;
  t->lib->create(&t->c, JPEG_LIB_VERSION, sizeof t->c);
  return t;
}

static void read_rows(const library *lib, j_decompress_ptr c, uint8_t *out, int n) {
  size_t stride = (size_t)c->output_width * 3;
  for (int done = 0; done < n;) {
    JSAMPROW rows[ROWS];
    int want = n - done < ROWS ? n - done : ROWS;
    for (int i = 0; i < want; i++) rows[i] = out + (done + i) * stride;
    done += lib->read(c, rows, want);
  }
}

const char *turbo_decode(turbo *t, const uint8_t *jpeg, size_t n, turbo_box *box, uint8_t *out) {
  j_decompress_ptr c = &t->c;
  const library *lib = t->lib;
  if (setjmp(t->failed)) {
    lib->abort(c);
    return t->message;
  }
  lib->mem_src(c, jpeg, n);
  lib->read_header(c, TRUE);
  c->out_color_space = JCS_RGB;
  lib->start(c);
  JDIMENSION left = 0, width = c->output_width;
  if (box->w < (int)width) {
    left = box->x;
    width = box->w;
    lib->crop(c, &left, &width);
  }
  if (box->y > 0) lib->skip(c, box->y);
  read_rows(lib, c, out, box->h);
  box->stride = (int)c->output_width * 3;
  box->first = (box->x - (int)left) * 3;
  if (c->output_scanline == c->output_height)
    lib->finish(c);
  else
    lib->abort(c);
  return NULL;
}

int turbo_version(void) { return LIBJPEG_TURBO_VERSION_NUMBER; }
