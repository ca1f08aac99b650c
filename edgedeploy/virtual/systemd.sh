#!/bin/sh
# Runs systemd in a virtual board's root, again after each reboot:
#
#   systemd.sh NAME FOLDER CGROUP
#
# The working folder is the root that board.sh assembled. Each run of systemd is the first process of its own namespaces;
# the root keeps its files. CGROUP is a folder of control groups, version 2, in which systemd creates its own. FOLDER is
# board.sh's.
set -eu

if [ $# = 3 ]; then
    mkdir -p "$3"
    while :; do
        code=0
        unshare --mount --pid --uts --ipc --fork --kill-child sh "$0" "$@" first || code=$?
        # A reboot in a PID namespace kills it with SIGHUP, pid_namespaces(7).
        [ $code = 129 ] || exit 0
    done
fi

if [ "$4" = first ]; then
    echo 0 >"$3/cgroup.procs"
    # This process's control group becomes the root of those that systemd sees.
    exec unshare --cgroup sh "$0" "$1" "$2" "$3" second
fi

echo "$1" >/proc/sys/kernel/hostname
mount -t proc proc proc
for file in "$2"/proc/*; do
    [ ! -f "$file" ] || mount --bind "$file" "proc/${file##*/}"
done
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mkdir -p sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 run run
mkdir -p run/sshd .before
pivot_root . .before
cd /
PATH=/usr/sbin:/usr/bin:/sbin:/bin # the caller's has folders outside of this root
umount -l /.before
exec env -i container=edgedeploy "PATH=$PATH" /lib/systemd/systemd
