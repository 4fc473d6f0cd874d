#!/usr/bin/env bash
# Runs every fuzz target of the Go packages for the given seconds each, as many
# side by side as there are cores. Go's default of minimising each new input for a
# minute would be most of a short run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

# Go's fuzzer sometimes ends a run that found nothing with its own deadline as the
# error (golang/go#75804); what it finds it says and writes down.
one() {
	local dir=$2 target=$3
	if ! out=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "${1}s" -fuzzminimizetime 10x -parallel 1 "$dir" 2>&1) &&
		{ grep -q 'Failing input written' <<<"$out" || ! grep -q '^ *context deadline exceeded$' <<<"$out"; }; then
		printf '== %s %s\n%s\n' "$dir" "$target" "$out"
		return 1
	fi
	echo "== $dir $target $(grep -oE 'execs: [0-9]+' <<<"$out" | tail -1)"
}
export -f one

grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./build' | sort | while read -r file; do
	grep -oE '^func (Fuzz[A-Za-z0-9_]*)' "$file" | awk '{print $2}' | sed "s#^#$seconds $(dirname "$file") #"
done | xargs -P "$(nproc)" -L 1 bash -c 'one "$0" "$1" "$2"'
