#!/usr/bin/env bash
# Runs the tests that generate no code with the oldest or the newest Python from 3.10 to 3.13 that this machine has
# beside the one of .venv: scripts/test_with.sh oldest|newest
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
oldest) versions=(3.10 3.11 3.12 3.13) ;;
newest) versions=(3.13 3.12 3.11 3.10) ;;
*) echo "usage: scripts/test_with.sh oldest|newest" >&2; exit 2 ;;
esac

# The program of a version. pyenv has commands for versions, too, that they do not start.
program() {
    local each
    for each in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python3; do
        "$each" -c 'import sys; print(sys.executable)' 2>/dev/null && return
    done
    return 1
}

default=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in "${versions[@]}"; do
    [ "$version" != "$default" ] && python=$(program "$version") || continue
    own=("PYTHON=$python" "VENV=build/python$version")
    if make setup "${own[@]}"; then
        exec make test-fast "${own[@]}"
    fi
    echo "skipped: Python $version, for which edgedeploy's dependencies cannot be installed"
    exit
done
echo "skipped: this machine has no Python but $default"
