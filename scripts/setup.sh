#!/usr/bin/env bash
# Installs edgedeploy with its development tools into a virtual environment: scripts/setup.sh PYTHON VENV
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 venv=$2

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    printf '  try: %s\n' "$@" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "there is no $python" "apt-get install python3" "make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "edgedeploy needs Python 3.10 or later, $python is $("$python" -V 2>&1)" "make PYTHON=/path/to/a/later/python3"

has_pip() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

# Debian keeps the part of Python that makes virtual environments in a package of its own; other programs can, too.
make_venv() {
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv --clear "$venv"
    elif command -v uv >/dev/null; then
        rm -rf "$venv"
        uv venv --quiet --seed --python "$python" "$venv"
    elif command -v virtualenv >/dev/null; then
        virtualenv --quiet --clear --python "$python" "$venv"
    else
        return 1
    fi
}

if ! has_pip && ! make_venv; then
    if [ "$(id -u)" = 0 ]; then scripts/system_packages.sh python; fi
    make_venv || fail "$python cannot make virtual environments" \
        "ask the administrator for: apt-get install python3-venv" \
        "install uv or virtualenv for yourself, which need no root: they are used where they are found" \
        "make PYTHON=/path/to/a/complete/python3"
fi
echo "installing edgedeploy and its tools into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
