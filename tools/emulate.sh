#!/bin/sh
# The -exec of `make test-arm64`: runs a test under qemu-user, so that it can start itself
# too, which a kernel without binfmt_misc refuses. The test's file becomes a script that
# runs the test by its new name.
#	QEMU_PAGESIZE=65536 is a kernel with pages of 64 KiB
set -eu
mv "$1" "$1.arm64"
printf '#!/bin/sh\nexec qemu-aarch64-static -0 "%s" "%s" "$@"\n' "$1" "$1.arm64" >"$1"
chmod +x "$1"
exec "$@"
