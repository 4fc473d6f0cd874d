#!/usr/bin/env bash
# Runs every fuzz target of the Go packages for the given seconds each, as many
# side by side as there are cores. Fails where a target found something, and where it
# ran no input: its seeds may have taken all of the time, or it may not be a target any more.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

# run is one target for so many seconds. Go's fuzzer sometimes ends a run that found
# nothing with its own deadline as the error (golang/go#75804); what it finds it says
# and writes down. Its default of minimising each new input for a minute would be most
# of a short run.
run() {
	out=$(go test -vet=off -ldflags=-w -run '^$' -fuzz "^$3\$" -fuzztime "${1}s" -fuzzminimizetime 10x -parallel 1 "$2" 2>&1) ||
		{ ! grep -q 'Failing input written' <<<"$out" && grep -q '^ *context deadline exceeded$' <<<"$out"; }
}

# one runs a target, and again for longer if all of the time went into the inputs that
# earlier runs have kept.
one() {
	local out execs= seconds
	for seconds in "$1" $((6 * $1)); do
		if ! run "$seconds" "$2" "$3"; then
			printf '== %s %s\n%s\n' "$2" "$3" "$out"
			return 1
		fi
		execs=$(sed -nE 's/^fuzz: elapsed: .*execs: ([0-9]+).*/\1/p' <<<"$out" | tail -1)
		if [ "${execs:-0}" != 0 ]; then
			echo "== $2 $3 execs: $execs"
			return 0
		fi
	done
	printf '== %s %s ran no input in %s s\n%s\n' "$2" "$3" "$seconds" "$out"
	return 1
}
export -f run one

targets=$(grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./build' | sort | while read -r file; do
	grep -oE '^func (Fuzz[A-Za-z0-9_]*)' "$file" | awk '{print $2}' | sed "s#^#$seconds $(dirname "$file") #"
done)
[ -n "$targets" ] || { echo "no fuzz targets below $PWD"; exit 1; }
xargs -P "$(nproc)" -L 1 bash -c 'one "$0" "$1" "$2"' <<<"$targets"
