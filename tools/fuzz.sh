#!/usr/bin/env bash
# Runs every fuzz target of the Go packages for the given seconds each, as many
# side by side as there are cores. Fails where a target found something, and where it
# ran no input: its seeds may have taken all of the time, or it may not be a target any more.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

# Go's fuzzer sometimes ends a run that found nothing with its own deadline as the
# error (golang/go#75804); what it finds it says and writes down. Its default of
# minimising each new input for a minute would be most of a short run.
one() {
	local dir=$2 target=$3 execs
	if ! out=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "${1}s" -fuzzminimizetime 10x -parallel 1 "$dir" 2>&1) &&
		{ grep -q 'Failing input written' <<<"$out" || ! grep -q '^ *context deadline exceeded$' <<<"$out"; }; then
		printf '== %s %s\n%s\n' "$dir" "$target" "$out"
		return 1
	fi
	execs=$(sed -nE 's/^fuzz: elapsed: .*execs: ([0-9]+).*/\1/p' <<<"$out" | tail -1)
	if [ "${execs:-0}" = 0 ]; then
		printf '== %s %s ran no input in %s s\n%s\n' "$dir" "$target" "$1" "$out"
		return 1
	fi
	echo "== $dir $target execs: $execs"
}
export -f one

targets=$(grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./build' | sort | while read -r file; do
	grep -oE '^func (Fuzz[A-Za-z0-9_]*)' "$file" | awk '{print $2}' | sed "s#^#$seconds $(dirname "$file") #"
done)
[ -n "$targets" ] || { echo "no fuzz targets below $PWD"; exit 1; }
xargs -P "$(nproc)" -L 1 bash -c 'one "$0" "$1" "$2"' <<<"$targets"
