# shellcheck shell=sh
# Holds the lock. $1: the base folder; $2: the owner; $3: the seconds without a sign of life after which it ends.
cd && mkdir -p "$1/blobs" "$1/releases" && cd "$1" || exit 1
command -v flock >/dev/null || { echo none; exit; }
exec 9>>lock
flock -n 9 || { echo "held by $(cat lock)"; exit; }
echo "$2" >lock
clear() { rm -rf staging-* blobs/incoming-* releases/*/staging-* trials/*/staging-*; }
clear
echo locked
watch() {
    ( trap 'kill $sleep; exit' TERM; sleep "$1" & sleep=$!; wait $sleep && kill $$ ) </dev/null >/dev/null 2>&1 9>&- &
    watcher=$!
}
watch "$3"
while read -r _; do kill $watcher; watch "$3"; done
kill $watcher
clear
wait $watcher
