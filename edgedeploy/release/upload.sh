# shellcheck shell=sh
# Stores standard input as a blob. $1: the base folder; $2: its SHA-256. A blob gets its name only when it is complete.
# The temporary name has the shell's PID: another shell may still wait for the rest of the same blob on a dead
# connection.
cd && cd "$1/blobs" || exit
incoming=incoming-$2.$$
trap 'rm -f "$incoming"' EXIT
cat >"$incoming" || exit
actual=$(sha256sum "$incoming") || exit
[ "${actual%% *}" = "$2" ] || { echo "SHA-256 of what arrived is ${actual%% *} instead of $2" >&2; exit 1; }
mv -f "$incoming" "$2"
