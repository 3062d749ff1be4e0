#!/bin/sh
# shellcheck shell=sh
#: about    the tests of the device model on rxe and siw, without the command
#: timeout  900
#: tests    rdma-iwarp

lane() {
    need lab/modules 60 load_modules verbs
    need lab/wire 20 wire_up
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        verbs_resources >/tmp/idle
        [ $device != rxe ] || check rxe/windows 300 model windows
        check $device/per-call 300 model per-call
        check $device/leaks-nothing 60 until_true 40 resources_are_idle
        check $device/kernel-log 10 quiet_but_for_refusals
        need lab/$device/down 60 verbs_down $device
    done
}

# model REGISTRATION
model() {
    VERBS_MODEL=$NEAR,$FAR VERBS_MODEL_REGISTRATION=$1 \
        "$LAB/tests/rdma-iwarp/model" --test-threads 1 --show-output
}

resources_are_idle() {
    verbs_resources | diff /tmp/idle -
}

# The drivers log each access that they refuse, and the tests ask for many.
quiet_but_for_refusals() {
    kernel_log_clean \
        -e 'rxe-(near|far): qp#[0-9]+ (make_send_cqe|do_complete): non-flush error status = [0-9]+$' \
        -e '(make_send_cqe|do_complete): [0-9]+ callbacks suppressed$' \
        -e 'siw: got TERMINATE\. layer [01], type [12], code [0-9]+$'
}
