#!/bin/sh
# shellcheck shell=sh
#: about    Linux's server and client of NFS over RDMA, judged by `rpcrdma conform` over siw
#: timeout  2400
#: copy     rpcrdma

JUDGE_PORT=20053 # where clients are judged

# The deviations that docs/conformance.md lists. Others are news, and so is one of these that is gone.
OF_SERVER='
    rfc8166/3.3.3/1 rfc8166/3.4.5/2 rfc8166/3.4.5/3 rfc8166/3.4.5/5 rfc8166/3.4.5/6 rfc8166/3.4.5/7 rfc8166/3.4.5/8
    rfc8166/3.4.5/14 rfc8166/4.2.1/1 rfc8166/4.2.1/2 rfc8166/4.2.4/10
    rfc8166/4.2.4/11 rfc8166/4.2.4/12 rfc8166/4.2.4/13 rfc8166/4.2.4/15 rfc8166/4.2.4/19
    rfc8166/4.2.4/30 rfc8166/4.3.2.3/1 rfc8166/4.5/4 rfc8166/4.5/5 rfc8166/4.5/9 rfc8166/4.5.2/3 rfc8166/4.5.2/4
    rfc8166/4.5.2/5 rfc8166/4.5.2/6 rfc8166/4.5.2/17 rfc8166/4.5.2/31 rfc8166/6.1/10
'
OF_CLIENT=''
# Deviations that show only at times: replies that are not discarded.
AT_TIMES='rfc8166/4.5/1005
rfc8166/4.5/1007'
# Not performed on Linux: see docs/conformance.md.
LEFT_OUT='rfc8166/4.2.4/14 rfc8166/4.5/1 rfc8166/4.5/2 rfc8166/4.5/3 rfc8166/4.5.2/30 rfc8166/6.1/1 rfc8166/6.1/2'

lane() {
    need lab/modules 60 load_modules verbs nfs
    need lab/wire 20 wire_up
    need lab/nfsd 60 nfsd_up
    need lab/siw 60 verbs_up siw
    check client 1500 client_judged
    check client/lives 60 nfs_round 3
    check server 1000 server_judged
    check server/lives 60 nfs_round 3
    check kernel-log 10 quiet_but_for_errors
}

server_judged() {
    judged server "$OF_SERVER" -o "mountproto=tcp,mountport=$MOUNT_PORT" "nfs://$FAR:$NFS_RDMA_PORT/export"
    equal 'left on the server' "$(ls -A /export)" ''
}

client_judged() {
    judged client "$OF_CLIENT" --listen $FAR:$JUDGE_PORT \
        --run "ping=$(on_mount true)" \
        --run "read=$(on_mount 'cat /mnt/file')" \
        --run "write=$(on_mount 'cp {file} /mnt/new')" \
        --run "list=$(on_mount 'ls /mnt/folder')"
}

# on_mount COMMAND: the command on a mount that nobody else sees, and that ends with it however that ends.
on_mount() {
    _options=vers=3,proto=rdma,port={port},mountproto=tcp,mountport={mountport},nolock,soft,timeo=100,retrans=1,retry=0
    printf '%s' "exec unshare --mount sh -c 'mount -t nfs -o $_options {host}:/conform /mnt || exit 1; " \
        "$1; status=\$?; umount --force --lazy /mnt; exit \$status'"
}

# judged NAME DEVIATIONS ARGUMENT...: the deviations are those. siw can lose the first message of a connection
# (README.md), so that a new deviation is one that shows three times. The results are kept.
judged() {
    _name=$1 _deviations=$2
    shift 2
    mkdir -p "$OUT/results"
    echo '{"entries": []}' >/tmp/results
    _all=$(rpcrdma conform --list | python3 -c "$SELECT" "$_name" "$LEFT_OUT")
    _only=$_all
    for _try in 1 2 3; do
        _status=0
        # The results of another round are none of this one.
        rm -f /tmp/round
        # shellcheck disable=SC2086  # words
        rpcrdma conform --timeout 5s $_only --json /tmp/round --capture "$OUT/$_name-$_try.pcapng" "$@" || _status=$?
        echo "round $_try: status $_status"
        python3 -c "$JOIN" "$_all" "$_deviations" /tmp/results /tmp/round >/tmp/again
        _only=$(cat /tmp/again)
        [ -n "$_only" ] || break
    done
    cp /tmp/results "$OUT/results/$_name.json"
    python3 -c "$FAILED" /tmp/results | tee /tmp/failed
    for _deviation in $_deviations; do
        echo "$_deviation"
    done | sort >/tmp/expected
    grep -vxF "$AT_TIMES" /tmp/failed | diff /tmp/expected -
}

# Selects the cases of a server or a client of version 1, and of a server the other versions.
SELECT='
import sys
name, left_out = sys.argv[1:]
addresses = [line.split()[0] for line in sys.stdin]
ours = [it for it in addresses if it.startswith("rfc") and (int(it.rsplit("/", 1)[1]) > 1000) == (name == "client")]
ours += ["rpcrdma2-07", "rpcrdma2-01"] if name == "server" else []
print(" ".join(f"--only {it}" for it in ours if it not in left_out.split()))
'

# Adds the results of a round to those before, and says which cases to perform again: failures that are news, and those
# that are missing, because the other end did not answer at all or not any more.
JOIN='
import json, os, sys
selected, known, kept, new = sys.argv[1:]
with open(kept) as file:
    results = {entry["address"]: entry for entry in json.load(file)["entries"]}
# Without a connection there is no report.
report = {"entries": []}
if os.path.exists(new):
    with open(new) as file:
        report = json.load(file)
for entry in report["entries"]:
    before = results.get(entry["address"])
    entry["tries"] = before["tries"] + 1 if before else 1
    # This entry stands for all cases of version 1.
    if entry["address"] != "rpcrdma1":
        results[entry["address"]] = entry
selected = [it for it in selected.split() if it != "--only"]
missing = [it for it in selected if it not in results]
failed = [it for it, entry in results.items() if entry["verdict"] in ("failed", "not-tested")]
again = missing + [it for it in failed if it not in known.split()]
print(" ".join(f"--only {it}" for it in again))
with open(kept, "w") as file:
    json.dump({"entries": list(results.values()), "missing": missing}, file, indent=1)
'

# Says how often there was each verdict, and prints what failed, and what was not tested.
FAILED='
import collections, json, sys
with open(sys.argv[1]) as file:
    report = json.load(file)
print(collections.Counter(entry["verdict"] for entry in report["entries"]), file=sys.stderr)
for entry in report["entries"]:
    if entry["tries"] > 1:
        print(entry["address"], entry["verdict"], "try", entry["tries"], file=sys.stderr)
failed = [entry["address"] for entry in report["entries"] if entry["verdict"] == "failed"]
for entry in report["entries"]:
    if entry["verdict"] == "not-tested":
        failed.append(entry["address"] + " was not tested")
failed += [f"{address} is missing" for address in report["missing"]]
print("".join(f"{it}\n" for it in sorted(failed)), end="")
'

quiet_but_for_errors() {
    kernel_log_clean
}
