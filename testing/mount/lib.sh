# What the suites of this directory have in common. They source it with the working directory at the
# repository's root; it needs root and /dev/fuse.

if [[ ! -c /dev/fuse ]]; then
    echo "$0: there is no /dev/fuse; load the kernel module (modprobe fuse)" >&2
    exit 1
fi
target=${CARGO_TARGET_DIR:-target}
# RPCRDMA names another build of the command than the one with the checks of the test profile.
if [[ ${RPCRDMA-} ]]; then
    cargo build --workspace --locked --quiet --bin exercise
else
    cargo build --workspace --locked --quiet --bin rpcrdma --bin exercise
fi
rpcrdma=$(realpath "${RPCRDMA:-$target/debug/rpcrdma}") exercise=$(realpath "$target/debug/exercise")
work=$(mktemp -d)
mnt=$work/mnt server=
mkdir "$mnt"
# Other users use the mount as well.
chmod 755 "$work"

# stop: unmounts, and ends the server. After a failure a program may still use the mount.
stop() {
    cd /
    "$rpcrdma" umount "$mnt" 2>/dev/null || "$rpcrdma" umount --lazy "$mnt" 2>/dev/null || true
    if [[ $server ]]; then
        kill -CONT "$server" 2>/dev/null || true
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
}

has() {
    if ! command -v "$1" >/dev/null; then
        echo "    $1 is not installed: left out" >&2
        return 1
    fi
}

# start FEATURES PORT: serves $work/export, and leaves its port in $port: that of RDMA or, if $proto is tcp,
# that of TCP. The other one is any.
start() {
    local ports=(--port "$2" --tcp-port 0)
    if [[ ${proto-} == tcp ]]; then
        ports=(--port 0 --tcp-port "$2")
    fi
    mkdir -p "$work/export"
    chmod 777 "$work/export"
    # That of an earlier server has another port.
    : >"$work/serve.log"
    "$rpcrdma" serve --export data="$work/export":no_root_squash "${ports[@]}" --features "$1" \
        >>"$work/serve.log" 2>&1 &
    server=$!
    for _ in {1..200}; do
        port=$(awk -v kind="${proto:-rdma}" '$1 == "listening" && $2 == kind { sub(/.*:/, "", $3); print $3 }' \
            "$work/serve.log")
        [[ $port ]] && return
        sleep 0.05
    done
    cat "$work/serve.log" >&2
    return 1
}
