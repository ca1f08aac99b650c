# shellcheck shell=sh disable=SC2154,SC2046
# Prints registered OpenCL drivers and GPU nodes with only a POSIX shell: lines of fields, separated by bars. $root is
# the prefix of the nodes' paths. $OCL_ICD_VENDORS names another folder of drivers, or one file, as for ocl-icd.
vendors=${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}
echo "vendors|$vendors"
[ -z "${EDGEDEPLOY_OPENCL_DEVICE+set}" ] || printf 'device|%s\n' "$EDGEDEPLOY_OPENCL_DEVICE"
case $vendors in *.icd) set -- "$vendors" ;; *) set -- "${vendors%/}"/*.icd ;; esac
for file; do
    [ ! -f "$file" ] || echo "driver|$file|$(head -n 1 "$file")"
done
echo "user|$(id -un)"
for node in "$root"/dev/dri/renderD* "$root"/dev/mali* "$root"/dev/kgsl-3d*; do
    [ -e "$node" ] || continue
    set -- $(ls -ld "$node")
    access=no
    [ ! -r "$node" ] || [ ! -w "$node" ] || access=yes
    echo "node|${node#"$root"}|$4|$access"
done
