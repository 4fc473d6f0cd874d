#!/usr/bin/env bash
# Runs every fuzz target of the Go packages, one after the other, for the given
# seconds each.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./build' | while read -r file; do
	grep -oE '^func (Fuzz[A-Za-z0-9_]*)' "$file" | awk '{print $2}' | while read -r target; do
		echo "== $(dirname "$file") $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "$(dirname "$file")"
	done
done
