#!/usr/bin/env bash
# The tests and the benchmark of a GPU on a machine that has one: with the Python, torch and
# pytest that are installed there, without network, Go or a virtual environment.
#
#	gpu.sh OUT [PART...]    the parts test and bench, or those that are named; each may take
#	                        LIMIT seconds (315). Writes into the folder OUT gpu-tests.json,
#	                        gpu-tests.txt, gpu.json and gpu.txt, as they come
#
# What needs Triton is listed as not run where there is no C compiler (or no Triton), with the reason.
#
# It runs in a checkout, and in the folder that `make gpu-bundle` makes. The engine is
# STOKER_ENGINE, else that of the bundle, else build/stoker. torchcodec and Kornia are those
# that are installed, else those of the bundle. Ends with 0 if everything passed.
set -u
out=${1:?usage: tools/gpu.sh OUT [PART...]}
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
limit=${LIMIT:-315}
for engine in stoker build/stoker; do
	[ -n "${STOKER_ENGINE:-}" ] || { [ -f $engine ] && STOKER_ENGINE=$PWD/$engine; }
done
[ -n "${STOKER_ENGINE:-}" ] || { echo "there is no engine: run make engine, or take the folder of make gpu-bundle" >&2; exit 2; }
chmod +x "$STOKER_ENGINE" 2>/dev/null
export STOKER_ENGINE PYTHONPATH=$PWD/python/src:$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export PYTHONDONTWRITEBYTECODE=1
wheels=
[ ! -d wheels ] || wheels=$("$python" tools/gpu_wheels.py use wheels)
[ -z "$wheels" ] || { echo "of the bundle: $wheels"; PYTHONPATH=$PYTHONPATH:$wheels; }
"$STOKER_ENGINE" version | head -3

status=0
part() {
	local name=$1
	shift
	echo "== $name: $*"
	timeout -k 10 "$limit" "$@" 2>&1 | tee "$out/$name.txt" | tail -n 60
	local ended=${PIPESTATUS[0]}
	[ "$ended" != 124 ] && [ "$ended" != 137 ] || echo "$name ran past its limit of $limit s"
	[ "$ended" = 0 ] || status=1
	echo "== $name ended with $ended"
}
for name in "${@:-test bench}"; do
	for one in $name; do
		case "$one" in
		test) part gpu-tests "$python" tools/gpu_tests.py "$out/gpu-tests.json" --durations=8 ;;
		bench) part gpu "$python" -m bench.gpu --out "$out/gpu.json" --limit $((limit - 15)) ;;
		*) echo "unknown part $one" >&2; exit 2 ;;
		esac
	done
done
exit $status
