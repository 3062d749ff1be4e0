# Shared by the scripts of this folder: an nfs-ganesha and pairs of gateways before it, in namespaces of their own.
# A script sources this and runs `isolated` first.
set -euo pipefail
rpcrdma=$(realpath -m "${RPCRDMA:-target/debug/rpcrdma}")
here=$PWD/testing/gateway
[[ -x $rpcrdma ]] || { echo "$0: there is no $rpcrdma" >&2 && exit 1; }

# What lies between the client and the server: a name, then options of the gateway that the client connects to, those of
# the gateway at the server, how the first one says which version was agreed, and whether Sends place items.
transports=(
    'v1|-o rpcrdma=1||version 1|'
    '2016|-o rpcrdma=2||version 2:|placing'
    'wg|-o rpcrdma=2wg,features=cont|--features cont|version 2wg|'
    'wg-ddp|-o rpcrdma=2wg||version 2wg|placing'
)
# Ports, on loopback in the namespace.
server_port=2049 gateway_port=2050

# isolated SECONDS ARGUMENTS...: runs the script again with its arguments, in a network, mounts and processes of its
# own. All that it started ends with it. The script's folder for files is $work.
isolated() {
    local seconds=$1
    shift
    if [[ ${ISOLATED-} ]]; then
        work=$ISOLATED
        # No acknowledgement is delayed: pynfs writes records in two parts, for which it waits 40 ms each otherwise.
        ip link set lo up
        ip address add 10.77.0.1/32 dev lo
        ip route replace local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 quickack 1
        mount -t tmpfs tmpfs /run
        mount -t tmpfs tmpfs /var/lib/nfs
        mkdir -p /run/ganesha /var/lib/nfs/ganesha "$work/volume"
        mount -t tmpfs tmpfs "$work/volume"
        brick=$work/volume/brick
        mkdir "$brick"
        return
    fi
    local status=0
    work=$(mktemp -d)
    ISOLATED=$work timeout --kill-after=10 "$seconds" \
        unshare --net --mount --pid --fork --mount-proc --kill-child "$here/${0##*/}" "$@" || status=$?
    if ((status == 124 || status == 137)); then
        echo "$0: stopped after $seconds s" >&2
    fi
    rm -rf "$work"
    exit "$status"
}

# fail TEXT: ends the script, and shows what the programs said last.
fail() {
    local log
    echo "$0: $1" >&2
    for log in "$work"/*.log; do
        [[ ! -e $log ]] || { echo "-- ${log##*/}" && tail -n 15 "$log"; } >&2
    done
    exit 1
}

# awaited PORT PID NAME: waits until the program listens there.
awaited() {
    local tries
    for tries in {1..300}; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    fail "$3 does not listen (port $1)"
}

# ganesha FSAL_BLOCK: starts the server with the export /export of that back end. The environment of the command is that
# of this function's caller.
ganesha() {
    cat >"$work/ganesha.conf" <<CONF
NFS_CORE_PARAM {
    Protocols = 4; NFS_Port = $server_port; Enable_NLM = false; Enable_RQUOTA = false;
}
# pynfs makes READs and WRITEs as long as the server allows; its 64 MiB is more than gateways pass (--max-reply).
# pynfs waits for leases to expire. With less than 10 s, one of its cases fails by its own arithmetic.
NFSv4 { Graceless = true; Delegations = true; RecoveryBackend = fs; Lease_Lifetime = 12; }
MEM { Inode_Size = 65536; }
EXPORT {
    Export_Id = 1; Path = ${path:-/export}; Pseudo = /export; Access_Type = RW; Squash = none; SecType = sys;
    Delegations = RW; MaxRead = 1048576; MaxWrite = 1048576; FSAL { $1 }
}
CONF
    ganesha.nfsd -F -f "$work/ganesha.conf" -L "$work/ganesha.log" -p "$work/ganesha.pid" -N EVENT &
    server=$!
    awaited "$server_port" "$server" nfs-ganesha
}

# ganesha_on_gluster PRELOADED: starts the server with a Gluster volume of one folder, $brick. Of its back ends that
# need no second machine only this one gives delegations. PRELOADED is a C file of this folder that helps it to.
ganesha_on_gluster() {
    gcc -Wall -Wextra -shared -fPIC -o "$work/preloaded.so" "testing/gateway/$1" -ldl
    local folder option
    for folder in /var/lib/glusterd /var/log/glusterfs; do mount -t tmpfs tmpfs "$folder"; done
    mkdir -p /run/gluster
    # At its first start it configures replication to other places, by a program that takes it six seconds.
    local replication
    replication=$(dpkg -L glusterfs-common glusterfs-server | grep '/gsyncd$' || true)
    if [[ -f $replication ]]; then
        printf '#!/bin/sh\necho gsyncd\n' >"$work/gsyncd"
        chmod +x "$work/gsyncd"
        mount --bind "$work/gsyncd" "$replication"
    fi
    glusterd --pid-file /run/glusterd.pid
    # It takes no address of loopback.
    volume create vol "10.77.0.1:$brick" force
    for option in features.leases=on performance.{write-behind,open-behind,quick-read,stat-prefetch}=off; do
        volume set vol "${option%=*}" "${option#*=}"
    done
    volume start vol
    LD_PRELOAD=$work/preloaded.so ganesha 'Name = GLUSTER; Hostname = 10.77.0.1; Volume = vol;'
}

# volume ARGUMENTS...
volume() { gluster --mode=script volume "$@" >>"$work/gluster.log" 2>&1 || fail "gluster volume $*"; }

# gateways TRANSPORT: starts a pair before the server.
gateways() {
    local name row
    for row in "${transports[@]}"; do
        IFS='|' read -r name from_client to_server agreed placing <<<"$row"
        [[ $name != "$1" ]] || break
    done
    [[ $name == "$1" ]] || fail "no transport is called $1"
    gateway_at_server
    gateway_at_client
}

# gateway_at_server: starts that gateway of the pair, or a successor of it, and waits until it listens.
gateway_at_server() {
    # shellcheck disable=SC2086 # Options.
    "$rpcrdma" gateway -v --listen rdma:127.0.0.1:20049 --to "tcp:127.0.0.1:$server_port" $to_server \
        >"$work/at-server.log" 2>&1 &
    at_server=$!
    awaited 20049 "$at_server" 'the gateway at the server'
}

# gateway_at_client: starts that gateway of the pair, or a successor of it, and waits until it listens.
gateway_at_client() {
    # shellcheck disable=SC2086 # Options.
    "$rpcrdma" gateway -v --explain --listen "tcp:127.0.0.1:$gateway_port" --to rdma:127.0.0.1:20049 $from_client \
        >"$work/at-client.kinds" 2>"$work/at-client.log" &
    at_client=$!
    awaited "$gateway_port" "$at_client" 'the gateway at the client'
}

# gateways_end: ends the pair, and checks that it spoke the version, placed no items if it should not, and passed all
# messages. Leaves in $passed what the first gateway counted, and in $placed the number of kinds of calls with items
# that were planned to be placed by Sends, in the call or in the reply.
gateways_end() {
    local log
    kill -TERM "$at_client"
    wait "$at_client" || fail "the gateway at the client ended with status $?"
    kill -TERM "$at_server"
    wait "$at_server" || fail "the gateway at the server ended with status $?"
    grep -q "decision=$agreed" "$work/at-client.log" || fail "the gateways did not agree on $agreed"
    # The version is the same with and without placement.
    grep -q '^explain: ' "$work/at-client.kinds" || fail 'the gateway at the client explains no kind of call'
    placed=$(grep -c -E '^explain: .*(item [0-9]+|its items) placed' "$work/at-client.kinds" || true)
    [[ $placing || $placed == 0 ]] || fail "$placed kinds of calls had items placed"
    # No call was answered by a gateway, because a reply was longer than expected or an item was where none may be.
    for log in "$work"/at-{client,server}.log; do
        passed=$(grep -o 'passed on .*' "$log") || fail "${log##*/} does not say how much passed"
        [[ $passed == *' failed=0 misplaced=0 '* ]] || fail "${log##*/}: $passed"
    done
    passed=$(grep -o 'passed on .*' "$work/at-client.log")
}
