#!/usr/bin/env bash
# Runs targets of the Makefile one after another, and prints what each took: minutes and
# seconds, also where one fails. Each is run by a make of its own, because set-up changes
# what the Makefile finds. `a+b` runs a and b side by side.
#
#	parts.sh NAME TARGET...     NAME labels the last line, the total
set -uo pipefail
name=$1
shift

began=$(date +%s)
table=
took() { printf -v table '%s%4d:%02d  %s\n' "$table" $(($2 / 60)) $(($2 % 60)) "$1"; }

status=0
for part in "$@"; do
	start=$(date +%s)
	IFS=+ read -ra targets <<<"$part"
	side=()
	[ ${#targets[@]} -eq 1 ] || side=(-j"${#targets[@]}")
	"${MAKE:-make}" --no-print-directory "${side[@]}" "${targets[@]}" || status=$?
	took "$part" $(($(date +%s) - start))
	[ "$status" = 0 ] || break
done
took "$name, set-up included" $(($(date +%s) - began))
printf '%s' "$table"
[ "$status" = 0 ] || echo "$name: $part failed"
exit "$status"
