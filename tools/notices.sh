#!/usr/bin/env bash
# Writes NOTICE: the licences of everything that is linked into
# the engine, which the wheel carries along. Run it in Debian when a dependency changes.
# A section without a text ends it: a licence that is not found is not one that is absent.
set -euo pipefail
cd "$(dirname "$0")/.."
out=NOTICE
new=$(mktemp)
trap 'rm -f "$new"' EXIT

# section TITLE FILE...: the texts of the files.
section() {
	local title=$1
	shift
	[ $# -gt 0 ] && grep -q . "$@" || { echo "notices.sh: no licence was found for $title" >&2 && exit 1; }
	printf '\n%s\n%s\n\n' "==== $title" "$(printf '=%.0s' {1..78})"
	cat "$@"
}

{
	cat <<'TEXT'
The engine in this package is built from stoker (Apache-2.0) and links in what follows, each under its own terms.

The engine of a wheel has the GNU C Library (glibc) in it, under the GNU Lesser General Public License, version 2.1,
whose text is the last section of this file.

- Which glibc: the file stoker/_engine/LIBRARIES of the wheel names its version, and the package of its source. Debian
  keeps the source of each version at https://snapshot.debian.org/package/glibc/ (2.36-8cross1 is made of 2.36-8).
- To use another one, or one that you have changed: all of the engine's source is in stoker's repository
  (github.com/stoker-data/stoker, and the tag of this version). `make engine` compiles it there, and links it with the
  libc.a that the compiler finds: build/stoker. Put it in place of stoker/_engine/stoker, or name it in STOKER_ENGINE.
- You may change the engine for your own use, and take it apart to find errors in such changes.

Some texts below name files of a Debian system: /usr/share/common-licenses/LGPL-2.1 is the last section, Apache-2.0 is
the text of the file LICENSE beside this one, and GPL-2 is for programs of glibc, none of which is in the engine.
TEXT
	section "The Go standard library and runtime" "$(go env GOROOT)/LICENSE"
	modules=$(go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/stoker | sort -u)
	while read -r path version dir; do
		readarray -d '' -t texts < <(find "$dir" -maxdepth 1 -type f \( -iname 'LICENSE*' -o -iname 'LICENCE*' -o -iname 'UNLICENSE*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) -print0 | sort -z)
		section "$path $version" "${texts[@]}"
	done <<<"$modules"
	section "The vocabularies of OpenAI's tiktoken" internal/tool/pack/token/tables/LICENSE
	for lib in libjpeg62-turbo-dev libwebp-dev libc6-dev; do
		section "Debian's $lib" "/usr/share/doc/$lib/copyright"
	done
	section "The GNU Lesser General Public License, version 2.1" /usr/share/common-licenses/LGPL-2.1
} >"$new"
cat "$new" >$out
echo "$out: $(wc -l <"$out") lines"
