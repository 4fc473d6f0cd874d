#!/usr/bin/env bash
# What the build needs from the system: installed where root and apt are there,
# named where they are not. Prints nothing when nothing is missing.
set -euo pipefail

command -v go >/dev/null || { echo "Go 1.26 is missing: install it, then run this again"; exit 2; }

missing=()
have() { echo "#include <stdio.h>
#include <$1>" | "${CC:-gcc}" -E - >/dev/null 2>&1; }
if [ -z "${STOKER_NO_CGO:-}" ]; then
	if ! command -v "${CC:-gcc}" >/dev/null; then missing+=(gcc libc6-dev); fi
	have jpeglib.h || missing+=(libjpeg62-turbo-dev)
	have webp/decode.h || missing+=(libwebp-dev)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	if { apt-get install -y -q "${missing[@]}" || { apt-get update -q && apt-get install -y -q "${missing[@]}"; }; } >/tmp/stoker-apt.$$ 2>&1; then
		rm -f /tmp/stoker-apt.$$
		exit 0
	fi
	tail -5 /tmp/stoker-apt.$$
fi
if command -v "${CC:-gcc}" >/dev/null; then
	echo "missing packages: ${missing[*]}"
	echo "install them with:  sudo apt-get install ${missing[*]}"
	echo "or build the slower pure-Go engine:  make demo STOKER_NO_CGO=1"
	exit 2
fi
echo "no C compiler (apt-get install ${missing[*]} would bring one): going on in pure Go"
