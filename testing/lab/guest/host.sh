# Processes on the host that the lane declares (`#: host NAME = ...`).
# shellcheck shell=sh

# host start NAME WORD...   starts it; succeeds when it listens on its ports
# host stop NAME            SIGTERM; gives its exit status
# host kill NAME            SIGKILL
# host run NAME WORD...     runs it to its end, prints what it printed, gives its exit status
# Words stand for `{args}` in its command. The check's time-out bounds the wait.
host() {
    _id=$$.$(now)
    echo "::lab ask $_id $*" >&3
    _answer=$LAB/answers/$_id
    until [ -e "$_answer" ]; do
        sleep 0.05
    done
    if [ -e "$_answer.out" ]; then
        cat "$_answer.out"
    fi
    return "$(cat "$_answer")"
}
