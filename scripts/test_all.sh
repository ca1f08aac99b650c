#!/usr/bin/env bash
# Runs all tests, part by part. After an interruption or a failure the same command goes on: a part that passed in this
# state of the checkout is not run again, and of one with failed tests only those are.
set -uo pipefail
cd "$(dirname "$0")/.."
state=$({ git rev-parse HEAD && git diff HEAD && git ls-files --others --exclude-standard -z | xargs -0r sha256sum; } |
    sha256sum | cut -c1-16)
stamps=build/test-all/$state
mkdir -p "$stamps"
# pytest ends with a code of its own, after which bash would go on.
trap 'echo "interrupted; the same command goes on where it stopped" >&2; exit 130' INT

# Runs a part unless it has passed: NAME COMMAND...; pytest's exit code 1 says that all tests ran and some failed.
part() {
    local name=$1 began=$SECONDS code=0
    shift
    if [ -e "$stamps/$name.passed" ]; then
        summary+=("$name: passed before")
        return
    fi
    [ ! -e "$stamps/$name.failed" ] || set -- "$@" --last-failed --last-failed-no-failures=none
    "$@" || code=$?
    rm -f "$stamps/$name.failed"
    case $code in
    0) touch "$stamps/$name.passed" ;;
    1) [[ $name != tests-* ]] || touch "$stamps/$name.failed" ;;
    esac
    summary+=("$name: exit code $code after $((SECONDS - began)) s")
    [ "$code" = 0 ] || [ "$first" != 0 ] || first=$code
}

summary=() first=0
# Runs the tests of some folders: NAME FOLDER...
tests() { part "tests-$1" .venv/bin/python -m pytest -n auto -o "cache_dir=$stamps/$1" "${@:2}"; }

tests unit tests/unit
tests boards-and-models tests/board tests/models  # networks run beside the last of the boards, which take turns
part newest-python scripts/test_with.sh newest
printf '%s\n' "${summary[@]}"
exit "$first"
