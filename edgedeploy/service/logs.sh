# shellcheck shell=sh
# Prints the log of a model ($2) below the base folder ($1), from the last $3 lines on. A long log has an older part. With
# $4, follow it until standard input ends.
cd "$HOME/$1/logs" 2>/dev/null || exit 0
{ cat "$2.jsonl.1" 2>/dev/null; cat "$2.jsonl" 2>/dev/null; } | tail -n "$3"
[ -n "$4" ] || exit 0
tail -n 0 -F "$2.jsonl" 2>/dev/null &
cat >/dev/null
kill $!
