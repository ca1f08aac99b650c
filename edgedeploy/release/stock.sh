# shellcheck shell=sh
# Prints the blobs that are there and sound. $1: the base folder; then the blobs.
cd && cd "$1/blobs" 2>/dev/null || exit 0
shift
for blob; do
    [ ! -f "$blob" ] || { actual=$(sha256sum "$blob"); [ "${actual%% *}" != "$blob" ] || echo "$blob"; }
done
