# shellcheck shell=sh
# A step for a network as a systemd service of a board.
# $1: the step; $2: `user` or `system`; $3: the folder of releases, below the home folder; $4: the model; $5: by step.

step=$1 base=$HOME/$3 model=$4
name=edgedeploy-$model
current=$base/releases/$model/current

# Exit codes, as in systemd.py.
no_release=61 old_agent=62 no_systemd=63 no_manager=64 no_root=65

# Sessions without PAM lack XDG_RUNTIME_DIR, which leads to the user's systemd. sudo must work without a password.
if [ "$2" = user ]; then
    export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
    units=$HOME/.config/systemd/user
    as_root() { "$@"; }
    control() { systemctl --user "$@"; }
else
    units=/etc/systemd/system
    as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
    control() { as_root systemctl "$@"; }
fi
unit=$units/$name.service

require_unit() { [ -e "$unit" ] || exit $no_release; }
lingers() { [ "$(loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null)" = yes ]; }

case $step in
    # Print lines: home, user, `systemd 252 (...)`.
    ask)
        command -v systemctl >/dev/null || exit $no_systemd
        as_root true || exit $no_root
        control show --property Version >/dev/null || exit $no_manager
        cd "$current/" 2>/dev/null && [ -x agent ] || exit $no_release
        ./agent --help | grep -q 'agent service' || exit $old_agent
        printf '%s\n' "$HOME" "$(id -un)" && systemctl --version | head -n 1
        ;;
    # Standard input is the unit, $5 the camera. A user's services run without a session only if the user lingers. A
    # service that does not start is run once in the foreground, for the reason, and the previous state is restored.
    install)
        umask 022
        mkdir -p "$base/logs" && chmod 700 "$base/logs" && as_root mkdir -p "$units" || exit
        [ ! -e "$unit" ] || as_root cp -p "$unit" "$units/.$name.old" || exit
        as_root tee "$units/.$name.new" >/dev/null && as_root mv -f "$units/.$name.new" "$unit" || exit
        control daemon-reload && control --quiet enable "$name.service" || exit
        if [ "$2" = user ] && ! lingers && ! loginctl enable-linger >/dev/null 2>&1; then echo no-linger; fi
        control restart "$name.service" 2>/dev/null
        code=$?
        if [ $code != 0 ]; then
            control stop "$name.service"
            folder=$(mktemp -d)
            timeout 20 "$current/agent" service "$model" --socket "$folder/socket" ${5:+"--camera=$5"} 2>&1 >/dev/null |
                tail -n 3 >&2
            rm -rf "$folder"
            if [ -e "$units/.$name.old" ]; then
                as_root mv -f "$units/.$name.old" "$unit" && control daemon-reload && control restart "$name.service"
            else
                control --quiet disable "$name.service"
                as_root rm -f "$unit" && control daemon-reload && control reset-failed "$name.service"
            fi
            exit $code
        fi
        as_root rm -f "$units/.$name.old"
        ;;
    start | stop)
        require_unit
        control "$step" "$name.service"
        ;;
    status)
        require_unit
        control show "$name.service" --property ActiveState,SubState,Result,NRestarts,MainPID,MemoryCurrent,UnitFileState
        basename "$(readlink "$current")"
        ;;
    uninstall)
        require_unit
        control --quiet disable --now "$name.service"
        as_root rm -f "$unit" && control daemon-reload || exit
        rm -f "$base/logs/$model.jsonl" "$base/logs/$model.jsonl.1"
        ;;
esac
