#!/usr/bin/env bash
# Builds dist/stoker-*.whl, and holds that it is what it must be: small, with a
# static engine inside, and at work in an empty virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf dist python/build
"${PYTHON:-python3}" -m pip wheel -q --disable-pip-version-check --no-deps -w dist ./python
wheel=$(ls dist/stoker-*.whl)
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le $((25 * 1024 * 1024)) ] || { echo "$wheel has $bytes bytes, more than 25 MiB"; exit 1; }
case "$wheel" in *py3-none-manylinux*) ;; *) echo "$wheel is not tagged py3-none-manylinux"; exit 1 ;; esac
if file build/stoker | grep -q 'dynamically linked'; then
	echo "the engine is linked to libraries of this system:"
	ldd build/stoker
	exit 1
fi
for library in libjpeg-turbo libwebp; do
	build/stoker version | grep -q "$library" || { echo "the engine is built without $library: tools/setup.sh all says what it takes"; exit 1; }
done

empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
"${PYTHON:-python3}" -m venv "$empty/venv"
"$empty/venv/bin/pip" install -q --disable-pip-version-check --no-deps "$wheel"
mkdir -p "$empty/data/a" "$empty/data/b"
cp testdata/photos/coffee.jpg "$empty/data/a/"
cp testdata/photos/rocket.jpg "$empty/data/b/"
cd "$empty"
env -u STOKER_ENGINE STOKER_CACHE="$empty/cache" "$empty/venv/bin/python" - <<'P'
import stoker

data = stoker.ImageFolder("data")
assert len(data) == 2 and data.classes == ["a", "b"] and data.targets == [0, 1], (len(data), data.classes)
print("stoker", stoker.__version__, "at work in an empty environment")
P
echo "$wheel: $((bytes / 1024)) KiB"
