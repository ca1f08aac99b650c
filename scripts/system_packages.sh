#!/usr/bin/env bash
# Installs the Debian packages that subjects need, as root; tells everybody else what is missing:
# scripts/system_packages.sh [--list] SUBJECT...  where SUBJECT is one of python, virtual-boards, drawing, opencl,
# predictions. With --list it prints the packages, by default those of all subjects, and installs nothing.
set -euo pipefail

list=
if [ "${1:-}" = --list ]; then
    list=yes
    shift
    [ $# != 0 ] || set -- python virtual-boards drawing opencl predictions
fi

has() { local each; for each; do command -v "$each" >/dev/null || return; done; }

for subject; do
    case $subject in
    python)
        packages=(python3-venv) serves="making virtual environments"
        lacks() { ! python3 -c 'import ensurepip, venv' 2>/dev/null; } ;;
    virtual-boards)
        packages=(qemu-user-static binfmt-support mmdebstrap openssh-client)
        # With the C libraries of other architectures, builds are checked under emulation.
        for each in $(sed -n 's/^debian: *//p' "${BASH_SOURCE%/*}"/../triples/*.yaml); do
            [ "$each" = "$(dpkg --print-architecture 2>/dev/null)" ] || packages+=("libc6-$each-cross")
        done
        serves="virtual boards"
        lacks() { ! has mmdebstrap qemu-arm-static ssh || { has dpkg && ! dpkg -s "${packages[@]}" &>/dev/null; }; } ;;
    drawing)
        packages=(graphviz) serves="drawing networks"
        lacks() { ! has dot; } ;;
    opencl)
        # A driver that makes the CPU a device, and the compiler that makes TVM's runtime for such devices.
        packages=(pocl-opencl-icd ocl-icd-libopencl1 clinfo g++) serves="OpenCL"
        lacks() { ! { has c++ clinfo && compgen -G '/etc/OpenCL/vendors/*.icd' >/dev/null; }; } ;;
    predictions)
        # What records code for 64-bit ARM, its C library, and the models of cores; Debian 13 has a later QEMU.
        packages=(qemu-user llvm-19 libc6-arm64-cross) serves="predicted cycles"
        lacks() { ! { has qemu-aarch64 llvm-mca-19 && [ -d /usr/aarch64-linux-gnu ]; }; } ;;
    *)
        echo "error: there is no subject $subject" >&2
        exit 2 ;;
    esac
    if [ -n "$list" ]; then
        printf '%s\n' "${packages[@]}"
        continue
    fi
    lacks || continue
    if [ "$(id -u)" != 0 ] || ! has apt-get; then
        echo "not installed, and left out without it: $serves (as root: apt-get install ${packages[*]})"
        continue
    fi
    echo "installing Debian's ${packages[*]}, for $serves"
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null ||
        echo "that failed: $serves will be left out"
done
