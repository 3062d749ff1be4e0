# Gateways and Linux's server are restarted under a writer.
# shellcheck shell=sh

# all_restarted SETUP VERSION...
all_restarted() {
    _setup=$1
    shift
    for _version in "$@"; do
        need "$_setup/nfs$_version/gateways" 60 gateways_up "$_setup"
        check "$_setup/nfs$_version/restarts" 300 restarts "$_setup" "$_version"
        need "$_setup/nfs$_version/gateways-killed" 60 gateways_killed
    done
}

# restarts SETUP VERSION: each gateway is killed under a writer, and then knfsd is restarted. What was promised is on
# its disk each time, and in the end everything is.
restarts() {
    mounted "$1" "$2"
    trap 'umount --force --lazy /mnt' EXIT
    mkdir /mnt/ledger
    rm -f /tmp/ledger
    exercise ledger /mnt/ledger /tmp/ledger --count 240 --pause 20 &
    _writer=$!
    _lines=0
    for _of in near far knfsd; do
        [ $_of = knfsd ] || [ -e /run/$_of.pid ] || continue
        _lines=$((_lines + 80))
        until_true 120 has_lines /tmp/ledger $_lines
        case $_of in
        knfsd) rpc.nfsd 0 ;;
        *) gateway_ends $_of KILL ;;
        esac
        exercise check-ledger /export/ledger /tmp/ledger
        case $_of in
        knfsd) rpc.nfsd --no-udp 4 ;;
        *) ${_of}_up "$1" ;;
        esac
        echo "$_of restarted at $(now)"
    done
    wait $_writer
    exercise check-ledger /export/ledger /tmp/ledger
    echo 3 >/proc/sys/vm/drop_caches
    exercise check-ledger /mnt/ledger /tmp/ledger
    rm -r /mnt/ledger
    trap - EXIT
    umount /mnt
}

# Expected in the log: the client says that a server does not respond, and is back; all of knfsd and of loop devices.
quiet_but_for_restarts() {
    kernel_log_clean -e 'nfs: server [^ ]+ (not responding, still trying|OK)$' -e 'NFSD: .*' -e 'nfsd: .*' \
        -e 'loop[0-9]+: .*'
}
