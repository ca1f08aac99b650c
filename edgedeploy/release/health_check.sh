# shellcheck shell=sh
# $1: the release's folder; $2: the time limit in seconds; $3, $4: the model and the release; $5: the command. It runs in
# its own session, so that at the limit all that the check started ends with it. A check that ends in time may leave
# programs running.
cd && cd "$1" || exit
limit=$2 EDGEDEPLOY_MODEL=$3 EDGEDEPLOY_RELEASE=$4
export EDGEDEPLOY_MODEL EDGEDEPLOY_RELEASE
session=
! command -v setsid >/dev/null || session=setsid
$session sh -c "$5" </dev/null 2>&1 &
check=$!
end() { kill -s "$1" -- "${session:+-}$check"; }
(
    trap 'kill $sleep; exit 0' TERM
    sleep "$limit" & sleep=$!
    wait $sleep
    trap '' TERM
    end TERM; sleep 1; end KILL
    exit 1
) </dev/null >/dev/null 2>&1 &
watchdog=$!
wait $check
code=$?
kill $watchdog
wait $watchdog
[ $? -ne 1 ] || exit 124
exit $code
