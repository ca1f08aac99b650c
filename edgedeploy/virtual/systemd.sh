#!/bin/sh
# Runs a virtual board's root by its own systemd, again whenever that reboots:
#
#   systemd.sh NAME FOLDER CGROUP
#
# The working folder is the root, put together by board.sh, whose first process becomes this. Each run of systemd is the
# first process of namespaces of its own; what the board wrote to its root is there in the next one. CGROUP is a folder of
# control groups, version 2, below which systemd makes its own. FOLDER is that of board.sh.
set -eu

if [ $# = 3 ]; then
    mkdir -p "$3"
    while :; do
        code=0
        unshare --mount --pid --uts --ipc --fork --kill-child sh "$0" "$@" first || code=$?
        # Killed by SIGHUP: what the kernel makes of a reboot there, pid_namespaces(7).
        [ $code = 129 ] || exit 0
    done
fi

if [ "$4" = first ]; then
    echo 0 >"$3/cgroup.procs"
    # The group that this process is in becomes the root of what is seen of them.
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
PATH=/usr/sbin:/usr/bin:/sbin:/bin # what the caller's led to lies in the folders of before
umount -l /.before
exec env -i container=edgedeploy "PATH=$PATH" /lib/systemd/systemd
