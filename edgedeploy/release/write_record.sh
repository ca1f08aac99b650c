# shellcheck shell=sh
# Adds lines to the record in the working folder, which is replaced as a whole: an appended line may be cut off, and the
# next one would continue it.
write_record() {
    most=$1
    shift
    { { [ ! -f history ] || tail -n "$most" history; } && printf '%s\n' "$@"; } >staging-history &&
        { sync staging-history 2>/dev/null || sync; } && mv -f staging-history history &&
        { sync -f . 2>/dev/null || sync; }
}
