#!/usr/bin/env bash
# Builds dist/stoker-*.whl, and holds that it is what it must be: small, with a
# static engine inside, and at work in an empty virtual environment.
#
#	wheel.sh [MACHINE]    x86_64 or aarch64; this machine's by default. The engine of
#	                      another one (STOKER_WHEEL_ENGINE) runs under qemu-user, driven
#	                      by this machine's Python
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
machine=${1:-$(uname -m)}
export STOKER_WHEEL_ENGINE=${STOKER_WHEEL_ENGINE:-$PWD/build/stoker}
engine=$STOKER_WHEEL_ENGINE
# Half of it are the clients of object stores and TLS; docs/decisions/wheel.md says what is
# inside.
limit=15000000

# Where pip installs is decided here, not by settings for other environments. Which index
# it asks is the machine's to say.
unset PIP_TARGET PIP_PREFIX PIP_ROOT PIP_USER
# Dates inside the wheel: two builds of a commit are the same file. Without git, the first
# day that a zip can name.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}

# What the build needs of Python, in the versions of requirements-dev.txt and in an
# environment of its own, made anew for another Python. Its pip builds the wheel: Debian's
# Python has none.
wanted=$(sed -n 's/^\(\(auditwheel\|deflate\)==[^ ;]*\).*/\1/p' python/requirements-dev.txt)
made_for="$wanted $("$python" -c 'import sys; print(sys.executable, sys.version)')"
tools=build/wheel-tools
if [ "$(cat $tools/has 2>/dev/null)" != "$made_for" ]; then
	rm -rf $tools
	"$python" -m venv $tools
	# shellcheck disable=SC2086 # one word for each
	$tools/bin/python -m pip install -q --disable-pip-version-check $wanted
	echo "$made_for" >$tools/has
fi

"$python" tools/static.py "$engine" "$machine"
compiler=${CC:-gcc}
[ "$machine" = "$(uname -m)" ] || compiler=$machine-linux-gnu-gcc
STOKER_WHEEL_LIBRARIES=$(bash tools/linked.sh "${compiler%% *}")
export STOKER_WHEEL_LIBRARIES
rm -rf dist/stoker-*_"$machine".whl python/build build/python
_PYTHON_HOST_PLATFORM=linux-$machine $tools/bin/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist ./python
wheel=$(ls dist/stoker-*_"$machine".whl)
$tools/bin/python tools/wheel_pack.py "$wheel"
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le $limit ] || { echo "$wheel has $bytes bytes, more than $limit"; exit 1; }
case "$wheel" in *py3-none-manylinux_2_28_"$machine".whl) ;; *) echo "$wheel is not tagged py3-none-manylinux_2_28_$machine"; exit 1 ;; esac

shown=$($tools/bin/python -m auditwheel show "$wheel" | tr '\n' ' ')
newest=$(sed -n 's/.*"manylinux_2_\([0-9]*\)_[a-z0-9_]*".*/\1/p' <<<"$shown")
case "$shown" in *"requires no external shared libraries"*) ;; *) newest= ;; esac
[ "${newest:-99}" -le 28 ] || { echo "auditwheel: $shown"; exit 1; }

# Installed and used: by this Python here, by every other one in `make wheel-test`.
"$python" tools/wheel_test.py "$wheel" "$(command -v "$python")"
echo "$wheel: $bytes bytes"
