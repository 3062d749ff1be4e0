#!/bin/sh
# shellcheck shell=sh
#: about    this project's server and client, judged by `rpcrdma conform --device` over rxe and siw
#: timeout  2000
#: copy     rpcrdma

JUDGE_PORT=20053 # where clients are judged

# Of the cases of clients, a core: the client is started once for each version, operation and behaviour of the server,
# which takes seconds in the guest.
OF_CLIENT='
    rfc5040 rfc8797 rfc8166/3.3.1 rfc8166/3.4.6 rfc8166/4.2.1 rfc8166/4.4.1 rfc8166/8.1
    rpcrdma2-07/4.2 rpcrdma2-07/5.1 rpcrdma2-07/6.5 rpcrdma2-07/6.3.9 rpcrdma2-07/11.1
    rpcrdma2-01/rfc8166-3.4.6 rpcrdma2-01/4.2 xcharext-02/2.1 send-placement-00/6.2
'

lane() {
    need lab/modules 60 load_modules verbs
    need lab/wire 20 wire_up
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        need $device/serve 40 serve_up
        check $device/server 600 server_judged $device
        check $device/serve-ends 30 serve_end TERM
        check $device/client 300 client_judged $device
        need lab/$device/down 60 verbs_down $device
    done
    check kernel-log 10 quiet_but_for_refusals
}

server_judged() {
    judged "$1-server" 600 '' "$OUR_URL" --device "verbs:$1-near"
    equal 'left on the server' "$(ls -A /tmp/served)" ''
}

client_judged() {
    judged "$1-client" 40 "$OF_CLIENT" --listen "$FAR:$JUDGE_PORT" --device "verbs:$1-far" --run own
}

# judged NAME COUNT CASES ARGUMENT...: at least so many cases pass, and none fails. siw can lose the first message of a
# connection (README.md): there, cases that fail are performed again, twice at most, and no more than ten in all. The
# results are kept, with the reasons for which a case was performed again.
judged() {
    # shellcheck disable=SC2086  # words
    _name=$1 _count=$2 _all=$(options $3)
    _only=$_all
    shift 3
    mkdir -p "$OUT/results"
    _rounds=1
    case $_name in siw-*) _rounds='1 2 3' ;; esac
    echo '{}' >/tmp/results
    for _round in $_rounds; do
        rm -f /tmp/round
        _status=0
        # shellcheck disable=SC2086  # words
        rpcrdma conform --timeout 10s $_only --json /tmp/round "$@" || _status=$?
        # 1: cases deviate; 2: nothing could be tested. The report says why.
        if [ $_status -gt 2 ]; then
            echo "round $_round: status $_status"
            return 1
        fi
        _only=$(python3 -c "$JOIN" /tmp/results /tmp/round)
        [ "$_only" ] || break
        [ "$_only" != all ] || _only=$_all
    done
    cp /tmp/results "$OUT/results/$_name.json"
    python3 -c "$COUNT" /tmp/results "$_count"
}

# Accesses to memory that is not offered, which cases make and provoke.
quiet_but_for_refusals() {
    kernel_log_clean \
        -e 'rxe-(near|far): qp#[0-9]+ (make_send_cqe|do_complete): non-flush error status = [0-9]+$' \
        -e '(make_send_cqe|do_complete): [0-9]+ callbacks suppressed$' \
        -e 'siw: got TERMINATE\. layer [01], type 1, code [01]$'
}

# options ADDRESS...: as options of the command.
options() {
    for _address in "$@"; do
        printf -- '--only %s ' "$_address"
    done
}

# Adds the results of a round to those before, and says which cases to perform again: all if the other end did not answer
# at all, or not any more.
JOIN='
import json, os, sys
kept, new = sys.argv[1:]
with open(kept) as file:
    results = json.load(file)
results["lost"] = {"verdict": "lost", "why": "there is no report"}
if os.path.exists(new):
    with open(new) as file:
        report = json.load(file)
    for entry in report["entries"]:
        old = results.get(entry["address"], {})
        if old.get("verdict") == "failed":
            entry["before"] = [*old.get("before", []), old["why"]]
        results[entry["address"]] = entry
    results["lost"] = {"verdict": "lost", "why": report["lost"] or report["untestable"]}
again = [it for it, entry in results.items() if entry["verdict"] in ("failed", "not-tested")]
print("all" if results["lost"]["why"] else " ".join(f"--only {it}" for it in again))
with open(kept, "w") as file:
    json.dump(results, file, indent=1)
'

# Says how often there was each verdict, why cases did not apply, and which were performed again; fails if one failed,
# or too few passed.
COUNT='
import collections, json, sys
with open(sys.argv[1]) as file:
    results = json.load(file)
lost = results.pop("lost")["why"]
verdicts = collections.Counter(entry["verdict"] for entry in results.values())
print(dict(verdicts))
for address, entry in results.items():
    if entry["verdict"] != "passed":
        print(entry["verdict"], address, entry["why"], *entry.get("exchange", []), sep="\n    ")
again = {address: entry["before"] for address, entry in results.items() if "before" in entry}
for address, reasons in again.items():
    print("again", address, *reasons, sep="\n    ")
if len(again) > 10:
    sys.exit(f"{len(again)} cases were performed again")
if lost or verdicts["failed"] or verdicts["not-tested"] or verdicts["passed"] < int(sys.argv[2]):
    sys.exit(f"not as it should be: {lost}")
'
