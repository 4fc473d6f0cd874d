#!/usr/bin/env bash
# What of the C libraries that stoker can use is here. This is the one place that looks:
# the Makefile hands the answers to every go command.
#
#	tags.sh            the build tags of those that can be linked in, comma-separated:
#	                   stoker_libjpeg and stoker_libwebp. README.md says what is missing
#	                   without them. STOKER_TAGS, even if empty, is an answer given beforehand
#	tags.sh --cc       1 if there is a C compiler with the headers that every program needs
#	tags.sh --cflags   where pkg-config finds their headers, if the compiler does not know
#	tags.sh --ldflags  where pkg-config finds the libraries, likewise
#	tags.sh --static   the flags that link an engine without any shared library; nothing
#	                   where the C library, or one of these, is here only as a shared one
set -u
read -ra cc <<<"${CC:-gcc}" # perhaps with a wrapper before it, or options after it
has_cc() { [ -z "${STOKER_NO_CGO:-}" ] && command -v "${cc[0]}" >/dev/null && links stdlib.h 0; }

# packaged OPTION...: what pkg-config says of the libraries, one at a time: one may be missing.
packaged() {
	command -v "${PKG_CONFIG:-pkg-config}" >/dev/null || return 0
	local library found=()
	for library in libjpeg libwebp; do
		read -ra flags < <("${PKG_CONFIG:-pkg-config}" "$@" "$library" 2>/dev/null)
		found+=("${flags[@]+"${flags[@]}"}")
	done
	echo "${found[*]-}"
}

# links HEADER EXPRESSION FLAG...: whether the expression can be compiled and linked.
links() {
	printf '#include <stddef.h>\n#include <stdio.h>\n#include <%s>\nint main(void) { return %s; }\n' "$1" "$2" |
		"${cc[@]}" -x c - -o /dev/null $(packaged --cflags-only-I) $(packaged --libs-only-L) "${@:3}" >/dev/null 2>&1
}

# The region functions are libjpeg-turbo's: the other libjpeg has none.
jpeg() { links jpeglib.h 'jpeg_crop_scanline == NULL || jpeg_skip_scanlines == NULL' "$@" -ljpeg -lm; }
webp() { links webp/decode.h 'WebPDecode == NULL' "$@" -lwebp -lm -lpthread; }

tags() {
	[ -z "${STOKER_TAGS+set}" ] || { echo "$STOKER_TAGS"; return; }
	has_cc || return 0
	local found=()
	jpeg && found+=(stoker_libjpeg)
	webp && found+=(stoker_libwebp)
	(IFS=,; echo "${found[*]-}")
}

static() {
	has_cc || return 0
	links stddef.h 0 -static -lm -lpthread || return 0
	local with
	with=$(tags)
	case "$with" in *stoker_libjpeg*) jpeg -static || return 0 ;; esac
	case "$with" in *stoker_libwebp*) webp -static || return 0 ;; esac
	echo "-linkmode external -extldflags -static"
}

case "${1:-}" in
"") tags ;;
--cc) ! has_cc || echo 1 ;;
--cflags) ! has_cc || packaged --cflags-only-I ;;
--ldflags) ! has_cc || packaged --libs-only-L ;;
--static) static ;;
*) echo "usage: tags.sh [--cc | --cflags | --ldflags | --static]" >&2; exit 2 ;;
esac
