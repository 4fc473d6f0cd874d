#!/usr/bin/env bash
# Prints which C libraries a static engine takes in on this system: a line for each with its
# package, and the package of its source, which the LGPL asks for. The wheel carries it.
#
#	linked.sh [COMPILER]    gcc by default
set -euo pipefail
compiler=${1:-gcc}
for file in libc.a libjpeg.a libwebp.a; do
	path=$("$compiler" -print-file-name=$file)
	case "$path" in
	/*) path=$(realpath "$path") ;;
	*) echo "linked.sh: $compiler finds no $file: \`tools/setup.sh wheel\` says how to install it" >&2 && exit 1 ;;
	esac
	said=
	if command -v dpkg-query >/dev/null && package=$(dpkg-query -S "$path" 2>/dev/null); then
		said=$(dpkg-query -W -f '${binary:Package} ${Version}; source: ${source:Package} ${source:Version} of '"$(. /etc/os-release && echo "$NAME")" "${package%%: *}")
	elif command -v rpm >/dev/null && rpm -qf "$path" >/dev/null 2>&1; then
		said=$(rpm -qf --qf '%{NAME} %{VERSION}-%{RELEASE}; source: %{SOURCERPM}' "$path")
	fi
	echo "$file: ${said:-of no package; $(sha256sum <"$path" | sed 's/ .*//; s/^/SHA-256 /')}"
done
