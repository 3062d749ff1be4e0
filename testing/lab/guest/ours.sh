# This project's command on verbs devices, both ends in the guest.
# shellcheck shell=sh

OUR_PORT=20050 # for RDMA; NFS and MOUNT over TCP are one above it

# serve_up OPTION...: our server on the wire's far end, exporting /tmp/served as /served. To verbs
# devices, clients here are another host's: root of that one, too. Two threads, even on one processor, to
# test that they share a listener.
serve_up() {
    mkdir -p /tmp/served
    : >"$OUT/serve.log"
    # shellcheck disable=SC2016  # for the inner shell
    sh -c 'echo $$ >/run/serve.pid; exec rpcrdma serve "$@"' serve \
        --device verbs --listen $FAR --port $OUR_PORT --tcp-port $((OUR_PORT + 1)) \
        --export served=/tmp/served:no_root_squash --handle-key /tmp/handle-key --threads 2 "$@" \
        >>"$OUT/serve.log" 2>&1 </dev/null &
    until_true 20 grep 'listening tcp' "$OUT/serve.log"
}

# serve_end SIGNAL
serve_end() {
    read -r _served </run/serve.pid
    kill -s "$1" "$_served"
    until_true 20 ended "$_served"
}

# ours COMMAND OPTIONS ARGUMENT...: our client, over the wire.
ours() {
    _command=$1 _mount=$2
    shift 2
    # shellcheck disable=SC2086  # it may be `put -r`
    rpcrdma $_command -o "device=verbs${_mount:+,$_mount}" "$@"
}

OUR_URL=nfs://$FAR:$OUR_PORT/served

# our_values OPTION: what `-o OPTION=` takes, as the command's help says it: a|b|c, or a number. The help also has
# the option in short, with a word in capitals for its value.
our_values() {
    _values=$(rpcrdma ls --help | tr -d '\n' | grep -oE "\b$1=[^ ,]*" | grep -vE '=[A-Z]+$' | head -n 1)
    [ "$_values" ]
    echo "${_values#*=}" | tr '|' '\n'
}
