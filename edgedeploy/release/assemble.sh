# shellcheck shell=sh
# Links blobs into a new folder. $1: the base folder; $2, $3: the folder; then pairs of a file's name and its blob.
cd && cd "$1" && mkdir -p "$2" && cd "$2" || exit
rm -rf "$3" && mkdir "$3" && cd "$3" || exit
shift 3
while [ $# -gt 0 ]; do
    case $1 in */*) mkdir -p "${1%/*}" || exit ;; esac
    ln "../../../blobs/$2" "$1" || exit
    shift 2
done
chmod 755 agent && { sync -f . 2>/dev/null || sync; }
