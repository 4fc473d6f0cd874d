#!/usr/bin/env bash
# What a build finds on this system.
#
#	setup.sh        for `make demo`: Go, and a C compiler or not. Installs nothing;
#	                names in a line what is missing and what that costs
#	setup.sh all    for `make test`: the C libraries too, which the kernel is compared
#	                with. Installs them where root and apt are there; else says how to
#	                install them, and that the tests then run without them
#	setup.sh wheel  for `make wheel`: everything, as static libraries; ends with 2 if
#	                something is missing
set -euo pipefail
unset GOFLAGS # the Makefile's: a Go before 1.18 ends at -buildvcs, and could not say how old it is
cd "$(dirname "$0")/.."
compiler=${CC:-gcc}
compiler=${compiler%% *}
oldest=21 # of Go 1: from here on the go command gets the toolchain that go.mod names

# install PART...: how to install parts on this system, in a line; empty if its packages
# are not known. The parts are go, cc, libjpeg and libwebp.
install() {
	local manager part names=()
	for manager in apt-get dnf pacman apk brew; do
		if command -v "$manager" >/dev/null; then break; fi
		manager=
	done
	for part in "$@"; do
		case "$manager:${compiler%%-*}:$part" in
		apt-get:aarch64:cc) names+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) && continue ;;
		apt-get:aarch64:lib*) names+=("$part-dev:arm64") && continue ;;
		esac
		case "$manager:$part" in
		apt-get:go) names+=(golang-go) ;;
		apt-get:cc) names+=(gcc libc6-dev) ;;
		apt-get:libjpeg) names+=(libjpeg-dev) ;;
		apt-get:libwebp) names+=(libwebp-dev) ;;
		dnf:go) names+=(golang) ;;
		dnf:cc) names+=(gcc glibc-devel) ;;
		dnf:libjpeg) names+=(libjpeg-turbo-devel) ;;
		dnf:libwebp) names+=(libwebp-devel) ;;
		pacman:go) names+=(go) ;;
		pacman:cc) names+=(gcc) ;;
		pacman:libjpeg) names+=(libjpeg-turbo) ;;
		pacman:libwebp) names+=(libwebp) ;;
		apk:go) names+=(go) ;;
		apk:cc) names+=(gcc musl-dev) ;;
		apk:libjpeg) names+=(libjpeg-turbo-dev libjpeg-turbo-static) ;;
		apk:libwebp) names+=(libwebp-dev libwebp-static) ;;
		brew:go) names+=(go) ;;
		brew:cc) names+=(gcc) ;;
		brew:libjpeg) names+=(jpeg-turbo) ;;
		brew:libwebp) names+=(webp) ;;
		esac
	done
	local sudo=
	[ "$(id -u)" = 0 ] || sudo="sudo "
	case "$manager" in
	apt-get)
		case " ${names[*]}" in *:arm64*) echo -n "${sudo}dpkg --add-architecture arm64, then " ;; esac
		echo "${sudo}apt-get install ${names[*]}"
		;;
	dnf) echo "${sudo}dnf install ${names[*]}" ;;
	pacman) echo "${sudo}pacman -S ${names[*]}" ;;
	apk) echo "${sudo}apk add ${names[*]}" ;;
	brew) echo "brew install ${names[*]}" ;;
	esac
}

# how PART...: the same in brackets.
how() {
	local line
	line=$(install "$@")
	[ -z "$line" ] || echo " ($line)"
}

if [ "$(uname -s)" != Linux ]; then
	echo "stoker runs on Linux: its engine hands batches over in memfds, which $(uname -s) does not have. In a Linux container it works"
	exit 2
fi
wanted=$(sed -n 's/^go //p' go.mod)
if ! command -v go >/dev/null; then
	echo "Go is missing$(how go). Go 1.$oldest or newer gets Go $wanted by itself; or install Go from https://go.dev/dl"
	exit 2
fi
if ! go version >/dev/null 2>&1; then
	go version || true
	echo "This Go could not get Go $wanted, as said above. Install Go $wanted from https://go.dev/dl"
	exit 2
fi
here=$(go env GOVERSION) # in this folder: the toolchain of go.mod, if this Go can get it
[ -n "$here" ] || here=$(go version | sed 's/.*version //; s/ .*//') # before Go 1.16
here=${here#go}
if [ "$(printf '%s\n' "$wanted" "$here" | sort -V | head -1)" != "$wanted" ]; then
	if [ "$(printf '%s\n' "1.$oldest" "$here" | sort -V | head -1)" = "1.$oldest" ]; then
		echo "Go $here is set to get no other one (GOTOOLCHAIN=$(go env GOTOOLCHAIN)), and stoker needs Go $wanted: unset GOTOOLCHAIN"
	else
		echo "Go $here is too old. Go 1.$oldest or newer gets Go $wanted by itself: install one from https://go.dev/dl, or a newer package (Debian 12: golang-1.22-go of bookworm-backports, whose command is /usr/lib/go-1.22/bin/go)"
	fi
	exit 2
fi
[ -z "${STOKER_NO_CGO:-}" ] || exit 0

missing=()
look() {
	missing=()
	[ -n "$(tools/tags.sh --cc)" ] || missing+=(cc)
	local tags
	tags=$(tools/tags.sh)
	case "$tags" in *stoker_libjpeg*) ;; *) missing+=(libjpeg) ;; esac
	case "$tags" in *stoker_libwebp*) ;; *) missing+=(libwebp) ;; esac
	[ "${1:-}" != wheel ] || [ ${#missing[@]} -gt 0 ] || [ -n "$(tools/tags.sh --static)" ] || missing+=(static)
}

# no_compiler says what is missing: a system may have gcc without the C library's headers.
no_compiler() {
	command -v "$compiler" >/dev/null && echo "$compiler cannot build a C program here" || echo "no C compiler"
}

# costs: what is missing, and what that costs.
costs() {
	case " ${missing[*]} " in
	*" cc "*) echo "$(no_compiler): the pure-Go engine decodes about a third as fast, progressive and CMYK JPEGs up to 4 of 255 apart; arithmetic coding and \`stoker pack --jpeg index\` are unsupported$(how "${missing[@]}")" ;;
	*)
		local less=() names=()
		case " ${missing[*]} " in *" libjpeg "*)
			names+=(libjpeg-turbo)
			less+=("progressive and CMYK JPEGs are decoded by Go, more slowly and up to 4 of 255 apart, and arithmetic coding is unsupported")
			;;
		esac
		case " ${missing[*]} " in *" libwebp "*) names+=(libwebp) less+=("lossless WebP is decoded by Go, more slowly") ;; esac
		printf 'built without %s: ' "$(sed 's/ / and /' <<<"${names[*]}")"
		[ ${#less[@]} -eq 1 ] && printf '%s' "${less[0]}" || printf '%s; %s' "${less[@]}"
		echo "$(how "${missing[@]}")"
		;;
	esac
}

look "${1:-}"
[ ${#missing[@]} -gt 0 ] || exit 0
if [ -z "${1:-}" ]; then
	costs
	exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ "${missing[*]}" != static ] && [ "$compiler" = gcc ]; then
	line=$(install "${missing[@]}")
	echo "installing: $line"
	read -ra packages <<<"${line#*install }"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	{ apt-get install -y -q "${packages[@]}" || { apt-get update -q && apt-get install -y -q "${packages[@]}"; }; } >"$log" 2>&1 || tail -5 "$log"
	look "$1"
	[ ${#missing[@]} -gt 0 ] || exit 0
fi
if [ "$1" = wheel ]; then
	case " ${missing[*]} " in
	*" static "*) echo "A wheel carries a static engine: static libraries (libc.a, libjpeg.a, libwebp.a) are missing here. Debian's -dev packages have them." ;;
	*" cc "*) echo "A wheel's engine is built with a C compiler, libjpeg-turbo and libwebp; here: $(no_compiler)$(how "${missing[@]}")" ;;
	*) echo "A wheel carries libjpeg-turbo and libwebp; missing here: ${missing[*]}$(how "${missing[@]}")" ;;
	esac
	exit 2
fi
costs
echo "The tests that compare stoker with what is missing are skipped."
