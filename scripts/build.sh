#!/usr/bin/env bash
# Builds the packages of all demos into dist/BOARD: scripts/build.sh [BOARD...]
# Without arguments, for every board; what is for this machine's OpenCL device needs one. Goes on when a board fails, and
# ends with the exit code of the first that did.
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
for board in "$@"; do
    edgedeploy build --board "$board" || { code=$?; [ "$first" != 0 ] || first=$code; }
done
exit "$first"
