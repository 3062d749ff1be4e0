# Two gateways between Linux's client and server: `near`, to which the client connects, and `far`, at the server.
# A set-up is DEVICE-RPCRDMA, as iwarp-2wg; with version 1 the client speaks that itself, and there is one gateway.
# shellcheck shell=sh

NFS_PORT=2049  # knfsd over TCP
NEAR_PORT=2050 # the gateway at the client, over TCP
FAR_PORT=20051 # the gateway at the server, over RDMA

# gateway_up near|far ARGUMENT...
gateway_up() {
    _which=$1
    shift
    : >"$OUT/$_which.log"
    # shellcheck disable=SC2016  # for the inner shell
    sh -c 'echo $$ >"$0"; exec rpcrdma gateway -v --explain "$@"' "/run/$_which.pid" "$@" \
        >"$OUT/$_which.log" 2>&1 </dev/null &
    until_true 30 grep 'listening [a-z]* .* to ' "$OUT/$_which.log"
}

device_of() {
    case $1 in
    iwarp-*) echo iwarp ;;
    *) echo verbs ;;
    esac
}

far_up() {
    gateway_up far --device "$(device_of "$1")" --listen rdma:$FAR:$FAR_PORT --to tcp:127.0.0.1:$NFS_PORT
}

near_up() {
    gateway_up near --listen tcp:127.0.0.1:$NEAR_PORT --to rdma:$FAR:$FAR_PORT \
        -o "device=$(device_of "$1"),rpcrdma=${1#*-}"
}

# gateways_up SETUP: two, or with version 1, which the client speaks itself, the one at the server.
gateways_up() {
    far_up "$1"
    case $1 in
    *-1) rm -f /run/near.pid ;;
    *) near_up "$1" ;;
    esac
}

# gateway_ends near|far SIGNAL
gateway_ends() {
    read -r _pid <"/run/$1.pid"
    kill -s "$2" "$_pid"
    until_true 20 ended "$_pid"
}

gateways_killed() {
    for _which in near far; do
        [ ! -e /run/$_which.pid ] || gateway_ends $_which KILL
    done
}

# gateways_end SETUP: each answered all calls, and the first had the version that it should have.
gateways_end() {
    for _which in near far; do
        [ -e /run/$_which.pid ] || continue
        gateway_ends $_which TERM
        rm /run/$_which.pid
        cat "$OUT/$_which.log"
        grep 'passed on .* failed=0 misplaced=0 ' "$OUT/$_which.log"
    done
    case $1 in
    *-2wg) grep 'decision=version 2wg' "$OUT/near.log" ;;
    *-2) grep 'decision=version 2:' "$OUT/near.log" ;;
    esac
}

# placed: the gateways that have ended had placed the data of WRITE, and reduced that of READ.
placed() {
    grep -E '^explained: .* WRITE.*item [0-9]+ placed' "$OUT/near.log"
    # READ_PLUS, which Linux's client uses in 4.2, has no data that may be apart; READ has.
    if grep -E '^explained: .* READ[ :].* and 0 apart$' "$OUT/near.log"; then
        return 1
    fi
}

# mounted SETUP|direct MOUNT: knfsd's /export at /mnt. A mount is the version of NFS, with the security unless that is
# AUTH_SYS: 4.2, 4.1-krb5i.
mounted() {
    _version=${2%-*} _security=
    _options=vers=$_version,hard
    case $1 in
    direct) _options=$_options,proto=tcp,port=$NFS_PORT _server=127.0.0.1 ;;
    *-1) _options=$_options,proto=rdma,port=$FAR_PORT _server=$FAR ;;
    *) _options=$_options,proto=tcp,port=$NEAR_PORT _server=127.0.0.1 ;;
    esac
    case $2 in
    *-*)
        _security=sec=${2#*-},
        _options=$_options,${_security%,}
        # Kerberos knows servers by their names.
        _server=$(getent hosts $_server | awk '{ print $2 }')
        ;;
    esac
    # MOUNT passes by the gateways.
    [ "$_version" != 3 ] || _options=$_options,nolock,mountproto=tcp,mountport=$MOUNT_PORT,mountaddr=$FAR
    mount -t nfs -o "$_options" "$_server:/export" /mnt
    grep " /mnt nfs.*vers=$_version,.*$_security" /proc/mounts
}
