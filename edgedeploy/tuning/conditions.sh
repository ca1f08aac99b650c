# shellcheck shell=sh disable=SC2154,SC2086
# Says in what state a board is, with nothing but a POSIX shell: lines "NAME VALUE", the value empty where nothing
# tells. $root stands before all paths.
cpus=$root/sys/devices/system/cpu
value() { cat "$1" 2>/dev/null | head -n 1; }

echo "governor $(value "$cpus/cpu0/cpufreq/scaling_governor")"
# The firmware of a Raspberry Pi lowers the clock without telling the kernel.
hz=$(vcgencmd measure_clock arm 2>/dev/null | sed -n 's/^frequency([0-9]*)=\([0-9][0-9]*\)$/\1/p')
echo "frequency_hz $hz"
echo "frequency_khz $(value "$cpus/cpu0/cpufreq/scaling_cur_freq")"
echo "frequency_mhz $(sed -n 's/^cpu MHz[[:space:]]*:[[:space:]]*//p' "$root/proc/cpuinfo" 2>/dev/null | head -n 1)"
echo "temperature $(cat "$root"/sys/class/thermal/thermal_zone*/temp 2>/dev/null | sort -n | tail -n 1)"
firmware=$(value "$root/sys/devices/platform/soc/soc:firmware/get_throttled")
echo "firmware ${firmware:-$(vcgencmd get_throttled 2>/dev/null | sed -n 's/^throttled=//p')}"
counts=$(cat "$cpus"/cpu[0-9]*/thermal_throttle/*_throttle_count 2>/dev/null)
[ -z "$counts" ] || echo "count $(($(echo $counts | tr ' ' '+')))"
