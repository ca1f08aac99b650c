#!/bin/sh
# The first process of a virtual board, in its own namespaces: assembles the root, and becomes sshd, or runs systemd.
#
#   board.sh ROOTFS FOLDER PORT NAME USER MIB SYSTEM [CGROUP]
#
# ROOTFS is only read. The board writes to a file system of MIB mebibytes in memory, which ends with this process.
# FOLDER has the board's own files: etc/ and var/ are copied over its root, proc/ appears in its /proc. SYSTEM is
# `processors` if its /sys shows this machine's processors, or empty. With a CGROUP it has systemd: see systemd.sh.
set -eu

# Under unshare, the next child is the first process. unshare itself would fork it with SIGTERM blocked from then on.
if [ $$ != 1 ]; then
    trap 'kill -KILL $first' TERM INT HUP
    # The board's programs must not inherit the signals that we ignore, as a background process or from our parent.
    setpriv --pdeathsig KILL env --default-signal sh "$0" "$@" &
    first=$!
    wait $first
    exit
fi

rootfs=$1 folder=$2 port=$3 name=$4 user=$5 mebibytes=$6 system=$7 cgroup=${8-}
scripts=$(cd "$(dirname "$0")" && pwd)

echo "$name" >/proc/sys/kernel/hostname
cd "$folder/mount"
mount -t tmpfs -o "size=${mebibytes}m,mode=755" edgedeploy .
cd "$folder/mount" # again, for the file system mounted there now
mkdir lower upper work root
mount --bind "$rootfs" lower
# Relative names: in the options of an overlay, colons and commas of a path would need escapes.
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work edgedeploy root
cd root

cp -R "$folder/etc/." etc/
[ ! -d "$folder/var" ] || cp -R "$folder/var/." var/
chmod 600 etc/ssh/host_key etc/shadow
chmod 644 etc/ssh/authorized_keys
mkdir -p "home/$user" proc dev run/sshd tmp var/empty
chown 1000:1000 "home/$user"
chmod 1777 tmp

mount -t proc proc proc
for file in "$folder"/proc/*; do
    [ ! -f "$file" ] || mount --bind "$file" "proc/${file##*/}"
done
if [ "$system" = processors ]; then
    for part in cpu node; do
        [ -d "/sys/devices/system/$part" ] || continue
        mkdir -p "sys/devices/system/$part"
        mount --rbind "/sys/devices/system/$part" "sys/devices/system/$part"
        mount -o remount,bind,ro "sys/devices/system/$part"
    done
fi
mount -t tmpfs -o size=64m,mode=755 dev dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
chmod 1777 dev/shm
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 666 dev/tty c 5 0
mknod -m 666 dev/console c 1 3

[ -z "$cgroup" ] || exec sh "$scripts/systemd.sh" "$name" "$folder" "$cgroup"
exec chroot . /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config -p "$port"
