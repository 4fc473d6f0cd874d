#!/usr/bin/env bash
# What a build finds on this system.
#
#	setup.sh        for `make demo`: Go, and a C compiler or not. Installs nothing;
#	                names in a line what is missing and what that costs
#	setup.sh all    for `make test` and `make wheel`: the C libraries too, which the
#	                kernel is compared with and which the wheel carries. Installs them
#	                where root and apt are there; else names them and ends with 2
set -euo pipefail
cd "$(dirname "$0")/.."

command -v go >/dev/null || { echo "Go 1.26 is missing: install it, then run this again"; exit 2; }
[ -z "${STOKER_NO_CGO:-}" ] || exit 0

missing=()
look() {
	missing=()
	command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
	local tags
	tags=$(tools/tags.sh)
	case "$tags" in *stoker_libjpeg*) ;; *) missing+=(libjpeg62-turbo-dev) ;; esac
	case "$tags" in *stoker_libwebp*) ;; *) missing+=(libwebp-dev) ;; esac
}
look
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "${1:-}" != all ]; then
	case " ${missing[*]} " in
	*" gcc "*) echo "no C compiler: the pure-Go engine decodes about a third as fast (Debian: apt-get install ${missing[*]})" ;;
	*)
		less=()
		case " ${missing[*]} " in *" libjpeg62-turbo-dev "*) less+=("progressive and CMYK JPEGs are decoded by Go, slower and up to 4 of 255 apart, arithmetic ones refused") ;; esac
		case " ${missing[*]} " in *" libwebp-dev "*) less+=("lossless WebP is decoded by Go, slower") ;; esac
		printf 'built without %s: ' "$(sed 's/ / and /' <<<"${missing[*]}")"
		[ ${#less[@]} -eq 1 ] && printf '%s' "${less[0]}" || printf '%s; %s' "${less[@]}"
		echo " (Debian: apt-get install ${missing[*]})"
		;;
	esac
	exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	{ apt-get install -y -q "${missing[@]}" || { apt-get update -q && apt-get install -y -q "${missing[@]}"; }; } >"$log" 2>&1 || tail -5 "$log"
	look
	[ ${#missing[@]} -gt 0 ] || exit 0
fi
echo "missing: ${missing[*]}. Tests compare the kernel with these libraries, and wheels carry them, static ones of them."
echo "Install them with:  sudo apt-get install ${missing[*]}   (without the libraries go: make demo, make go-bare, make go-nocgo)"
exit 2
