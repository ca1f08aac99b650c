# shellcheck shell=sh
# Prints lines "KIND MODEL ..." about all releases, trials and records. $1: the base folder; $2: the most lines of
# a record.
cd && cd "$1" 2>/dev/null || exit 0
for name in releases/*/* trials/*/*; do
    folder=${name%/*} file=${name##*/}
    model=${folder#*/}
    case $folder/$file in
        releases/*/current) echo "current $model $(readlink "$name")" ;;
        releases/*/history)
            tail -n "$2" "$name" |
                while read -r line || [ -n "$line" ]; do printf 'record %s %s\n' "$model" "$line"; done ;;
        *) [ ! -d "$name" ] || echo "${folder%%/*} $model $file $(du -sk "$name" | cut -f 1)" ;;
    esac
done
