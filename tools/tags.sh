#!/usr/bin/env bash
# The build tags of the C libraries that are here to be linked in, comma-separated:
# stoker_libjpeg and stoker_libwebp, where a program with that library compiles and
# links. Neither is needed; README.md says what is missing without them. This is the one
# place that looks: the Makefile hands the answer to every go command. STOKER_TAGS, empty
# too, is an answer given beforehand.
set -u
[ -z "${STOKER_TAGS+set}" ] || { echo "$STOKER_TAGS"; exit 0; }
cc=${CC:-gcc}
[ -z "${STOKER_NO_CGO:-}" ] && command -v "$cc" >/dev/null || exit 0

# links HEADER EXPRESSION LIBRARY...: whether the expression can be compiled and linked.
links() {
	printf '#include <stddef.h>\n#include <stdio.h>\n#include <%s>\nint main(void) { return %s; }\n' "$1" "$2" |
		"$cc" -x c - -o /dev/null "${@:3}" >/dev/null 2>&1
}

tags=()
# The region functions are libjpeg-turbo's: the other libjpeg has none.
links jpeglib.h 'jpeg_crop_scanline == NULL || jpeg_skip_scanlines == NULL' -l:libjpeg.a -lm && tags+=(stoker_libjpeg)
links webp/decode.h 'WebPDecode == NULL' -l:libwebp.a -lm -lpthread && tags+=(stoker_libwebp)
(IFS=,; echo "${tags[*]-}")
