#!/bin/sh
# shellcheck shell=sh
#: about    the two commands of docs/cards.md, one on each end of the wire, over rxe and siw
#: timeout  600
#: copy     rpcrdma

lane() {
    need lab/modules 60 load_modules verbs
    need lab/wire 20 wire_up
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        need $device/serve 40 compare_server_up
        check $device/compare 240 compared $device
        check $device/end 20 compare_server_ends
        need lab/$device/down 30 verbs_down $device
    done
    check kernel-log 10 kernel_log_clean
}

compare_server_up() {
    # shellcheck disable=SC2016  # for the inner shell
    sh -c 'echo $$ >/run/kit.pid; exec rpcrdma compare-server "$@"' serve \
        --device verbs --listen $FAR --client $NEAR >"$OUT/kit.log" 2>&1 </dev/null &
    until_true 20 grep 'listening compare' "$OUT/kit.log"
}

# compared DEVICE: a row for each operation and transport, and what only another end can have counted.
compared() {
    mkdir -p "$OUT/results"
    _json=$OUT/results/$1.json _page=$OUT/results/$1.html
    rpcrdma compare --device verbs --server $FAR --via tcp,v1-inv,v2-ddp-cont,wg-ddp --ops null,write --sizes 8k \
        --count 18 --no-trips --json "$_json" --html "$_page"
    grep -q 'servers on another machine' "$_page"
    perl -MJSON::PP -0777 -ne '
        my %reads;
        for my $row (@{decode_json($_)}) {
            die "no server: $row->{op}" unless $row->{server} =~ /Linux/;
            $reads{$row->{transfer_mode}} = $row->{rdma_reads} if $row->{op} eq "write";
        }
        my $found = join(" ", map { "$_=" . ($reads{$_} // "none") } sort keys %reads);
        print("$found\n");
        exit($found ne "tcp=none v1-inv=1 v2-ddp-cont=0 wg-ddp=0");
    ' "$_json"
}

compare_server_ends() {
    read -r _pid </run/kit.pid
    kill "$_pid"
    until_true 10 ended "$_pid"
    cat "$OUT/kit.log"
    [ "$(wc -l <"$OUT/kit.log")" = 1 ]
}
