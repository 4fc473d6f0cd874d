#!/usr/bin/env bash
# Builds the guided fuzzer with clang: build.sh OUTPUT, in the top of the repository.
# clang does not know GCC's target pragma, so each file gets those features as flags, and
# before clang 18 not the name lzcnt: every processor with bmi2 has it.
set -euo pipefail
output=$1
clang=${CLANG:-clang}
command -v "$clang" >/dev/null || { echo "clang is missing: apt-get install clang"; exit 2; }

kernel=internal/base/kernel
flags=(-std=gnu17 -g -O1 -Wall -Wextra -Wno-unknown-pragmas -fno-strict-aliasing -fno-omit-frame-pointer
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I$kernel -I$kernel/fuzz -I$kernel/fuzz/guided)
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT

n=0
for file in "$kernel"/*.c "$kernel"/fuzz/*.c "$kernel"/fuzz/guided/*.c; do
	case $file in */nolibjpeg.c | */fuzz/main.c) continue ;; esac
	mapfile -t features < <(sed -nE 's/^#pragma GCC target\("(.*)"\)/\1/p' "$file" | tr ',' '\n' | sed 's/^/-m/')
	{
		echo "#line 1 \"$file\""
		sed 's/__builtin_cpu_supports("lzcnt")/__builtin_cpu_supports("bmi2")/' "$file"
	} | "$clang" "${flags[@]}" "${features[@]}" -x c -c - -o "$objects/$n.o"
	n=$((n + 1))
done
"$clang" "${flags[@]}" "$objects"/*.o -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=stk_entry_enter -l:libjpeg.a -lm -o "$output"
