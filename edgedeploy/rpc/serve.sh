# shellcheck shell=sh
# $1: the base folder; $2: the agent's path, or the name of its blob; then its options. The name of a folder below `rpc`
# is the process id of its shell, so that leftovers of ended ones are known.
exec 2>&1
cd && mkdir -p "$1/rpc" && cd "$1/rpc" || exit
for left in *; do
    case $left in *[!0-9]*) ;; *) kill -0 "$left" 2>/dev/null || rm -rf "$left" ;; esac
done
rm -rf $$ && mkdir $$ && cd $$ || exit
# Kernels that are only measured do not go into the user's cache.
export EDGEDEPLOY_OPENCL_CACHE="$PWD/opencl"
case $2 in
    /*) agent=$2 ;;
    *) ln "../../blobs/$2" agent && chmod 755 agent && agent=./agent || exit ;;
esac
shift 2
"$agent" rpc --work-dir "$PWD" "$@"
code=$?
cd .. && rm -rf $$
exit $code
