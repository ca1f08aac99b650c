# shellcheck shell=sh disable=SC2154
# Says what power a board takes, with nothing but a POSIX shell: a line "source NAME", then after $after seconds $count
# times, $pause seconds apart, a line "sample SECONDS" with the system's clock, and what the source says. $root stands
# before all paths.
value() { head -n 1 "$1" 2>/dev/null; }

# A sensor in the supply line, whose kernel driver reports microwatts (Documentation/hwmon/ina2xx.rst).
sensor=
for name in "$root"/sys/class/hwmon/hwmon*/name; do
    case $(value "$name") in
    ina2*) [ -z "$(value "${name%/*}/power1_input")" ] || sensor=${name%/*}/power1_input ;;
    esac
done
# Energy of the processor's packages in microjoules (Documentation/power/powercap/powercap.rst).
counters=
for name in "$root"/sys/class/powercap/intel-rapl:*/name; do
    case $(value "$name") in
    package-*) [ -z "$(value "${name%/*}/energy_uj")" ] || counters="$counters ${name%/*}/energy_uj" ;;
    esac
done

if [ -n "$sensor" ]; then
    source=sensor
    say() { value "$sensor"; }
elif rails=$(vcgencmd pmic_read_adc 2>/dev/null) && [ -n "$rails" ]; then
    source=rails
    say() { vcgencmd pmic_read_adc; }
elif [ -n "$counters" ]; then
    source=counters
    say() { for each in $counters; do value "$each"; done; }
else
    exit 0
fi

echo "source $source"
sleep "$after"
while [ "$count" -gt 0 ]; do
    read -r now _ <"$root/proc/uptime"
    echo "sample $now"
    say
    count=$((count - 1))
    sleep "$pause"
done
