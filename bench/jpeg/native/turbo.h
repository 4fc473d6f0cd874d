#include <stddef.h>
#include <stdint.h>

typedef struct turbo turbo;

// A box of pixels. What turbo_decode writes may begin left of x: first says how many bytes, stride how long a row is.
typedef struct {
  int x, y, w, h;
  int stride, first;
} turbo_box;

// turbo_new opens the libjpeg.so.62 at path, or takes the one linked in where path is NULL. It returns NULL if that
// cannot be opened or lacks a function.
turbo *turbo_new(const char *path);

// turbo_decode writes the box as RGB, row under row, into out, which has room for rows as wide as the picture. It
// returns NULL, or what is wrong with the picture.
const char *turbo_decode(turbo *t, const uint8_t *jpeg, size_t n, turbo_box *box, uint8_t *out);

// turbo_version is LIBJPEG_TURBO_VERSION_NUMBER of the library linked in: 2001005 is 2.1.5.
int turbo_version(void);
