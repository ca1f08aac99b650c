# shellcheck shell=sh
# Removes folders, and blobs without a link. $1: the base folder; then the folders. A release is renamed before its
# removal. A later command removes what stays: NFS does not delete the files of running programs.
cd && cd "$1" || exit
shift
for name; do
    aside=${name%/*}/staging-${name##*/}
    mv "$name" "$aside" || exit
    rm -rf "$aside"
done
rmdir trials/* 2>/dev/null
find blobs -type f -links 1 -exec rm -f {} +
