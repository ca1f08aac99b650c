#!/usr/bin/env bash
# Runs `make demo` and `make test` on bare Debian machines, which are root file systems in namespaces: as root, and as a
# user who has no way to become root. Needs root and mmdebstrap; takes as long as those commands, for each machine.
set -euo pipefail

usage() {
    cat <<'TEXT'
scripts/fresh_machine.sh [--release NAME]... [--user root|user]... [--resume] [TARGET...]

  --release NAME    a release of Debian's; bookworm and trixie unless given
  --user NAME       root, or user, who cannot become root; both unless given
  --resume          go on in the machine that the last run left behind, if it failed, and leave this one behind
  TARGET            what to make; demo and test unless given

TESTS=PATHS restricts `make test` to some tests. EDGEDEPLOY_DEBIAN_MIRROR names another mirror of Debian's packages.
TEXT
}

releases=() users=() targets=() resume=
while [ $# != 0 ]; do
    case $1 in
    --release) releases+=("$2"); shift ;;
    --user) users+=("$2"); shift ;;
    --resume) resume=yes ;;
    -h | --help) usage; exit ;;
    -*) usage >&2; exit 2 ;;
    *) targets+=("$1") ;;
    esac
    shift
done
[ ${#releases[@]} != 0 ] || releases=(bookworm trixie)
[ ${#users[@]} != 0 ] || users=(root user)
[ ${#targets[@]} != 0 ] || targets=(demo test)

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "error: fresh machines need root and mmdebstrap" >&2
    exit 1
fi

checkout=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/edgedeploy/fresh
# What CONTRIBUTING.md asks of a machine, and what it asks an administrator for where users cannot become root.
packages=python3,make,ca-certificates,git
for_users=python3-venv

# A bare root file system of a release, made once; prints its folder.
bare() {
    local release=$1 key folder
    key=$(printf '%s\n' "$release" "$packages" minbase | sha256sum | cut -c1-12)
    folder=$cache/$release-$key
    if [ ! -d "$folder" ]; then
        echo "making a bare $release" >&2
        rm -rf "$folder.part"
        mkdir -p "$cache"
        # Without a mirror mmdebstrap takes the packages from where this machine takes its own, if it is of that release.
        mmdebstrap --quiet --variant=minbase "--include=$packages" "$release" "$folder.part" \
            ${EDGEDEPLOY_DEBIAN_MIRROR:+"$EDGEDEPLOY_DEBIAN_MIRROR"} >&2
        mv "$folder.part" "$folder"
    fi
    printf '%s\n' "$folder"
}

# The folders on this machine that pip takes packages from: named by its configuration and its variables.
pip_folders() {
    {
        cat /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" 2>/dev/null || true
        env | sed -n 's/^PIP_[A-Z_]*=//p'
    } | grep -oE '(file://)?/[^[:space:]]+' | sed 's,^file://,,; s,/simple/*$,,' | sort -u |
        while read -r folder; do [ ! -d "$folder" ] || printf '%s\n' "$folder"; done
}

# Shares this machine's network, certificates and pip configuration.
equip() {
    local root=$1
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
    for file in "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf"; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$root/etc/xdg/pip/pip.conf"
    done
    grep -q '^user:' "$root/etc/passwd" || chroot "$root" useradd --create-home --shell /bin/bash user
}

# Runs a command in a machine as one of its users, in its home folder; every process of it ends with the command.
inside() {
    local root=$1 user=$2 home=/home/$2
    shift 2
    [ "$user" != root ] || home=/root
    local -a environment=("HOME=$home" "USER=$user" LANG=C.UTF-8 "TERM=${TERM:-dumb}"
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
    while read -r variable; do environment+=("$variable"); done < <(env | grep -E '^(PIP_[A-Z_]+|TESTS|CI)=')
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1 user=$2 home=$3 shared=$4 folders=$5
        shift 5
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t tmpfs tmpfs "$root/run"
        bring() { mkdir -p "$root$2"; mount --bind "$1" "$root$2"; mount -o remount,bind,ro "$root$2"; }
        [ ! -d "$shared" ] || bring "$shared" "$home/shared"
        for folder in $folders; do bring "$folder" "$folder"; done
        cd "$root$home"
        # This shell stays: as process 1 it reaps orphans, and as root it keeps the signal that ends it with unshare.
        chroot --userspec="$user:$user" --groups= "$root" env -i "$@" || exit $?
    ' bash "$root" "$user" "$home" "$(readlink -f "$checkout/../shared" || true)" "$(pip_folders)" \
        "${environment[@]}" bash -c 'cd && exec "$@"' bash "$@"
}

# Makes a target; prints one line for the summary.
made() {
    local root=$1 user=$2 target=$3 began=$SECONDS code=0
    inside "$root" "$user" make -C edgedeploy "$target" ${TESTS:+"TESTS=$TESTS"} || code=$?
    summary+=("$(printf '%-10s %-5s make %-8s exit code %3d  %5d s' "$release" "$user" "$target" "$code" $((SECONDS - began)))")
    return "$code"
}

summary=() failed=0
commit=$(git -C "$checkout" rev-parse HEAD)
[ -z "$(git -C "$checkout" status --porcelain)" ] || echo "note: what is not committed is not tried"
for release in "${releases[@]}"; do
    pristine=$(bare "$release")
    for user in "${users[@]}"; do
        root=$cache/run-$release-$user
        home=$root/home/$user
        [ "$user" != root ] || home=$root/root
        if [ -z "$resume" ] || [ ! -d "$root" ]; then
            rm -rf "$root"
            cp -a --reflink=auto "$pristine" "$root"
        fi
        equip "$root"
        [ -d "$home/edgedeploy" ] || git clone --quiet --no-hardlinks "$checkout" "$home/edgedeploy"
        git -C "$home/edgedeploy" -c safe.directory='*' fetch --quiet "$checkout" "$commit"
        git -C "$home/edgedeploy" -c safe.directory='*' checkout --quiet --detach "$commit"
        if [ "$user" != root ]; then
            chroot "$root" chown -R "$user:$user" "/home/$user"
            if ! chroot "$root" python3 -c 'import ensurepip' 2>/dev/null; then
                echo "== $release, $user: without $for_users it has to stop and say so"
                if said=$(inside "$root" "$user" make -C edgedeploy setup 2>&1) || [[ $said != *"$for_users"* ]]; then
                    printf '%s\nerror: it does not\n' "$said"
                    failed=1
                fi
                inside "$root" root bash -c "apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
                    apt-get install -qq -y --no-install-recommends $for_users >/dev/null"
            fi
        fi
        sound=yes
        for target in "${targets[@]}"; do
            echo "== $release, $user: make $target"
            made "$root" "$user" "$target" || { failed=1 sound=; }
        done
        [ -n "$resume" ] || [ -z "$sound" ] || rm -rf "$root"
    done
done
printf '%s\n' "" "${summary[@]}"
exit "$failed"
