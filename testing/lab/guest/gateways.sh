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
