# shellcheck shell=sh
# After write_record.sh: prepares the links of a switch, and writes the record. The link for going back is created
# first: a release that fails may have filled the disk. $1: the base folder; $2: the model; $3: the release; $4: the one
# to go back to, or empty; then the most lines of the record, and new ones.
cd && cd "$1/releases/$2" || exit
[ -d "$3" ] || { echo "there is no $3" >&2; exit 1; }
rm -f staging-current staging-back && ln -s "$3" staging-current || exit
[ -z "$4" ] || ln -s "$4" staging-back || exit
ln -f "$3/agent" ../../staging-agent && mv -f ../../staging-agent ../../agent && rm -f ../../staging-agent || exit
shift 4
write_record "$@"
