#!/usr/bin/env bash
# Writes NOTICE: the licences of everything that is linked into
# the engine, which the wheel carries along. Run it when a dependency changes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=NOTICE
{
	echo "The engine in this package is built from stoker (Apache-2.0) and links in what follows, each under its own terms."
	section() { printf '\n%s\n%s\n\n' "==== $1" "$(printf '=%.0s' {1..78})"; }
	section "The Go standard library and runtime"
	cat "$(go env GOROOT)/LICENSE"
	go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/stoker | sort -u |
		while read -r path version dir; do
			section "$path $version"
			find "$dir" -maxdepth 1 -type f \( -iname 'LICENSE*' -o -iname 'LICENCE*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) -print0 | sort -z | xargs -0 cat
		done
	for lib in libjpeg62-turbo-dev libwebp-dev libc6-dev; do
		section "Debian's $lib"
		cat "/usr/share/doc/$lib/copyright"
	done
} >"$out"
echo "$out: $(wc -l <"$out") lines"
