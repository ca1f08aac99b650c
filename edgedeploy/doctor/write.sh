# shellcheck shell=sh
# Writes a file in the folder $1 below the home folder, or the nearest existing one above it, and prints that folder and
# its free KiB. A real write finds more faults than permissions and free space show. 8 MiB are an agent and a network.
folder=$HOME/$1
until [ -d "$folder" ]; do folder=${folder%/*}; folder=${folder:-/}; done
file=$folder/.edgedeploy-doctor.$$
trap 'rm -f "$file"' EXIT
trap 'exit 1' HUP INT TERM
echo "$folder"
df -Pk "$folder" | sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9]*% .*/\1/p'
( : >"$file" ) 2>/dev/null || { echo "user $(id -un) may not write there" >&2; exit 3; }
dd if=/dev/zero of="$file" bs=65536 count=128 2>/dev/null || { echo "8 MiB could not be written there" >&2; exit 4; }
