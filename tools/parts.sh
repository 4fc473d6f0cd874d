#!/usr/bin/env bash
# Runs targets of the Makefile one after another, and prints what each took, minutes and
# seconds of a clock and of the processors, also where one fails: the second is about the
# same where others use the machine, too. Each is run by a make of its own, because set-up
# changes what the Makefile finds. `a+b` runs a and b side by side.
#
#	parts.sh NAME TARGET...     NAME labels the last line, the total
set -uo pipefail
name=$1
shift

began=$(date +%s)
table=
took() { printf -v table '%s%4d:%02d %4d:%02d  %s\n' "$table" $(($2 / 60)) $(($2 % 60)) $(($3 / 60)) $(($3 % 60)) "$1"; }

# cpu is the seconds of processors that all parts have used: of children that have ended.
# A file, because in a subshell times speaks of the subshell's own.
seconds=$(mktemp)
trap 'rm -f "$seconds"' EXIT
cpu=0
used() {
	times >"$seconds"
	cpu=$(awk -F'[ms ]+' 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }' "$seconds")
}

status=0
for part in "$@"; do
	start=$(date +%s)
	before=$cpu
	IFS=+ read -ra targets <<<"$part"
	side=()
	[ ${#targets[@]} -eq 1 ] || side=(-j"${#targets[@]}")
	"${MAKE:-make}" --no-print-directory "${side[@]}" "${targets[@]}" || status=$?
	used
	took "$part" $(($(date +%s) - start)) $((cpu - before))
	[ "$status" = 0 ] || break
done
took "$name, set-up included" $(($(date +%s) - began)) "$cpu"
printf '%s' "$table"
[ "$status" = 0 ] || echo "$name: $part failed"
exit "$status"
