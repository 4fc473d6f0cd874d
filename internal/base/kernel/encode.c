//go:build stoker_libjpeg

// The encoder, for demonstrations and tests: allocates as libjpeg does.
#include "stk.h"

#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

typedef struct {
  struct jpeg_error_mgr err;
  jmp_buf env;
  char *msg;
} encode_err;

static void on_error(j_common_ptr c) {
  encode_err *e = (encode_err *)c->err;
  char msg[JMSG_LENGTH_MAX];
  e->err.format_message(c, msg);
  snprintf(e->msg, STK_MSG, "%s", msg);
  longjmp(e->env, 1);
}

static void on_output(j_common_ptr c) { (void)c; }

// A picture of 4 channels is stored unchanged: inverted CMYK or, with space JCS_YCCK,
// converted; both with Adobe's marker.
static void configure(struct jpeg_compress_struct *c, int channels, int quality, int hs, int vs, int restart,
                      int flags, int space, jpeg_scan_info *scans) {
  c->in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(c);
  if (space) jpeg_set_colorspace(c, space);
  jpeg_set_quality(c, quality, TRUE);
  c->dct_method = JDCT_ISLOW;
  c->restart_interval = restart;
  for (int i = 0; i < c->num_components; i++) c->comp_info[i].h_samp_factor = c->comp_info[i].v_samp_factor = 1;
  int chroma = c->jpeg_color_space == JCS_YCbCr || c->jpeg_color_space == JCS_YCCK;
  if (chroma) {
    c->comp_info[0].h_samp_factor = hs;
    c->comp_info[0].v_samp_factor = vs;
    if (c->num_components == 4) {
      c->comp_info[3].h_samp_factor = hs;
      c->comp_info[3].v_samp_factor = vs;
    }
  }
  c->optimize_coding = flags & STK_OPTIMIZE ? TRUE : FALSE;
  c->arith_code = flags & STK_ARITHMETIC ? TRUE : FALSE;
  if (flags & STK_SEPARATE) {
    for (int i = 0; i < c->num_components; i++)
      scans[i] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {i}, .Se = DCTSIZE2 - 1};
    c->scan_info = scans;
    c->num_scans = c->num_components;
  }
  if (flags & STK_PROGRESSIVE) jpeg_simple_progression(c);
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

// The version is that of the headers; a static library always has the same.
const char *stk_libjpeg_version(void) { return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION); }

// stk_encode writes to *out, which the caller frees, or an error text to msg.
int stk_encode(const uint8_t *pix, int w, int h, int channels, int quality, int hs, int vs, int restart,
               int flags, int space, uint8_t **out, unsigned long *nout, char *msg) {
  struct jpeg_compress_struct c;
  jpeg_scan_info scans[MAX_COMPONENTS];
  encode_err e;
  memset(&c, 0, sizeof c);
  *out = NULL;
  *nout = 0;
  e.msg = msg;
  c.err = jpeg_std_error(&e.err);
  e.err.error_exit = on_error;
  e.err.output_message = on_output;
  if (setjmp(e.env)) {
    jpeg_destroy_compress(&c);
    free(*out);
    *out = NULL;
    return STK_FORMAT;
  }
  jpeg_create_compress(&c);
  jpeg_mem_dest(&c, out, nout);
  c.image_width = w;
  c.image_height = h;
  c.input_components = channels;
  configure(&c, channels, quality, hs, vs, restart, flags, space, scans);
  jpeg_start_compress(&c, TRUE);
  while (c.next_scanline < c.image_height) {
    JSAMPROW row = (JSAMPROW)(pix + (size_t)c.next_scanline * w * channels);
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  return STK_OK;
}
