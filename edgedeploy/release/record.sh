# shellcheck shell=sh
# After write_record.sh. $1: the base folder; $2: the model; then the most lines, and new ones.
cd && cd "$1/releases/$2" || exit
shift 2
write_record "$@"
