# shellcheck shell=sh
# Runs the program on standard input in the folder $1 of releases, or where that would be created: other places may
# forbid programs. $2: the time limit in seconds; then the arguments. At the end, the program's file is removed, and a
# program that hangs is killed.
folder=$HOME/$1 limit=$2
shift 2
until [ -d "$folder" ]; do folder=${folder%/*}; folder=${folder:-/}; done
program=$folder/.edgedeploy-doctor.$$
trap 'rm -f "$program"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$program" && chmod 700 "$program" || exit
"$program" "$@" &
running=$!
{
    while [ "$limit" -gt 0 ] && kill -0 $running; do sleep 1; limit=$((limit - 1)); done
    kill -9 $running
} >/dev/null 2>&1 &
watchdog=$!
wait $running
code=$?
kill $watchdog 2>/dev/null
exit $code
