# shellcheck shell=sh disable=SC1091
# Prints facts about a board with only a POSIX shell: lines "NAME VALUE", an empty line, and the ELF header of its
# shell.
line() { tr '\n' ' '; }
first() { sed -n "s/^$1[[:space:]]*:[[:space:]]*//p" /proc/cpuinfo | head -n 1; }

echo "machine $(uname -m)"
echo "kernel $(uname -r)"
printf 'system %s\n' "$(. /etc/os-release 2>/dev/null && printf %s "$PRETTY_NAME" | line)"
printf 'hardware %s\n' "$({ tr -d '\0' 2>/dev/null </proc/device-tree/model || first 'model name'; } | line)"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
if [ -z "$glibc" ]; then
    for library in /lib/libc.so.6 /lib/*/libc.so.6 /lib64/libc.so.6; do
        [ ! -x "$library" ] || glibc=$("$library" | sed -n '1s/.*version \([0-9.]*[0-9]\).*/\1/p')
    done
fi
echo "glibc ${glibc#glibc }"
features=$(first Features)
echo "features ${features:-$(first flags)}"
echo "cores $(getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
echo "governor $(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null)"
echo "temperature $(cat /sys/class/thermal/thermal_zone*/temp 2>/dev/null | sort -n | tail -n 1)"
echo "memory $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
echo "free $(df -Pk "$HOME" | sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9]*% .*/\1/p')"
echo
dd if=/bin/sh bs=64 count=1 2>/dev/null
