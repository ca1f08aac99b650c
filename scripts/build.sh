#!/usr/bin/env bash
# Builds the packages of all demos into dist/BOARD: scripts/build.sh [BOARD...]
# Without arguments, for every board; what is for this machine's OpenCL device needs one. A board that fails does not stop
# the others: the end lists it, and the exit code is that of the first. Ctrl-C ends all.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
make -s -C "$root" setup >&2 || exit
edgedeploy() { "$root/.venv/bin/python" -m edgedeploy "$@"; }

if [ $# = 0 ]; then
    names=$(edgedeploy boards --json | "$root/.venv/bin/python" -c '
import json, sys
print(*(board["name"] for board in json.load(sys.stdin)))') || exit
    # shellcheck disable=SC2086  # one word for each board
    set -- $names
fi

first=0
failed=()
for board in "$@"; do
    edgedeploy build --all-demos --board "$board" && continue
    code=$?
    [ "$code" != 130 ] || exit 130
    failed+=("$board (exit code $code)")
    [ "$first" != 0 ] || first=$code
done
[ "$first" = 0 ] || printf 'failed for %s\n' "${failed[@]}" >&2
exit "$first"
