#!/bin/sh
# shellcheck shell=sh
#: about    the lab itself: processes of the host, ports both ways, a host's program in the guest
#: control
#: timeout  120
#: copy     lab
#: forward  7777
#: host     echo = {lab} echo serve 127.0.0.1:{port:echo}
#: host     ask = {lab} echo ask 127.0.0.1:{forward:7777} from-the-host

lane() {
    check host/start 20 host start echo
    check guest-to-host 20 ask_host
    check host/kill 20 host kill echo
    check host/is-gone 20 host_is_gone
    check host/start-again 20 host start echo
    check guest-to-host-again 20 ask_host
    check host/stop 20 stop_host
    lab echo serve 0.0.0.0:7777 >"$OUT/echo.log" 2>&1 &
    check host-to-guest 20 asked_by_host
    check undeclared 20 undeclared
}

ask_host() {
    equal answer "$(lab echo ask "$HOST:$PORT_echo" from-the-guest)" from-the-guest
}

host_is_gone() {
    ! lab echo ask "$HOST:$PORT_echo" anybody
}

stop_host() {
    status=0
    host stop echo || status=$?
    equal 'status of a process that SIGTERM ended' $status 143
}

asked_by_host() {
    until_true 10 lab echo ask 127.0.0.1:7777 ready
    equal answer "$(host run ask)" from-the-host
}

undeclared() {
    ! host run sh
}
