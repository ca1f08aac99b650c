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

# Debian keeps the part of Python that makes virtual environments in a package of its own.
makes_venvs() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
if ! makes_venvs && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Debian's python3-venv"
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >/dev/null || true
fi
makes_venvs || fail "$python cannot make virtual environments" \
    "as root: apt-get install python3-venv" "make PYTHON=/path/to/a/complete/python3"

# What virtual boards are made with. They serve tests and demos of boards, which can also do without.
virtual_boards=(qemu-user-static binfmt-support mmdebstrap openssh-client libc6-arm64-cross libc6-armhf-cross)
lacks_virtual_boards() { ! { command -v mmdebstrap && command -v qemu-arm-static && command -v ssh; } >/dev/null; }
if lacks_virtual_boards && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Debian's ${virtual_boards[*]}"
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${virtual_boards[@]}" >/dev/null ||
        echo "that failed: there will be no virtual boards"
fi

# Draws networks; everything else does without.
if ! command -v dot >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Debian's graphviz"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends graphviz >/dev/null ||
        echo "that failed: networks cannot be drawn"
fi

# OpenCL on the CPU, and the compiler that makes TVM's runtime for it. They serve tests of OpenCL, which can be skipped.
opencl=(pocl-opencl-icd ocl-icd-libopencl1 g++)
lacks_opencl() { ! { compgen -G '/etc/OpenCL/vendors/*.icd' && command -v c++; } >/dev/null; }
if lacks_opencl && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Debian's ${opencl[*]}"
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${opencl[@]}" >/dev/null ||
        echo "that failed: there will be no OpenCL"
fi

"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
echo "installing edgedeploy and its tools into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
