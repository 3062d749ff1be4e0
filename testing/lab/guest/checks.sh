# Checks, and what they are made of.
# shellcheck shell=sh

# Hundredths of a second since power-on.
now() {
    read -r _up _ </proc/uptime
    echo "${_up%.*}${_up#*.}"
}

# check NAME SECONDS COMMAND...: runs it, says how it went, and goes on in any case. Names are parts
# with slashes between them; those that begin with `lab/` are about the lab, not the product.
# $passed is then 1 or 0.
check() {
    # Names of features have a +, which is none of the characters below.
    _name=$(echo "$1" | tr + -) _limit=$2
    shift 2
    case $_name in
    *[!A-Za-z0-9_./-]*)
        # The host does not know a result by a name with other characters, and a failure would not count.
        echo 'not ok lab/name-of-check 0'
        echo "    '$_name': names of checks have letters, digits and _ . / - only"
        exit 1
        ;;
    esac
    _log=$OUT/$(echo "$_name" | tr / -).log
    _start=$(now)
    _status=0
    timeout --kill-after=5 "$_limit" sh "$LAB/guest/step.sh" "$@" >"$_log" 2>&1 </dev/null || _status=$?
    _took=$(($(now) - _start))
    _took=$(printf '%d.%02d' $((_took / 100)) $((_took % 100)))
    if [ $_status = 0 ]; then
        passed=1
        echo "ok $_name $_took"
        return
    fi
    passed=0
    echo "not ok $_name $_took"
    case $_status in
    124 | 137) echo "    stopped after $_limit s" ;;
    *) echo "    status $_status" ;;
    esac
    tail -n 40 "$_log" | sed 's/^/    /'
}

# As check; when it fails, nothing after it makes sense, and the lane ends.
need() {
    check "$@"
    [ $passed = 1 ] || exit 0
}

# skip NAME REASON...: a check that this guest or this version cannot do.
skip() {
    echo "skip $*"
}

# until_true SECONDS COMMAND...: waits for it to succeed.
until_true() {
    _end=$(($(now) + $1 * 100))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ "$(now)" -ge $_end ]; then
            echo "not in time: $*"
            "$@"
            return 1
        fi
        sleep 0.1
    done
}

# equal WHAT ONE OTHER
equal() {
    [ "$2" = "$3" ] || {
        echo "$1: '$2' is not '$3'"
        return 1
    }
}

# tried WHAT COMMAND...: what the command says, without where.
tried() {
    _what=$1
    shift
    if _said=$("$@" 2>&1 </dev/null); then
        echo "$_what: ok"
    else
        echo "$_what: ${_said##*: }"
    fi
}

# has_lines FILE COUNT: so many, or more.
has_lines() {
    [ "$(wc -l <"$1")" -ge "$2" ]
}

# sum FILE: its checksum, without its name.
sum() {
    sha256sum <"$1"
}

# capture INTERFACE NAME: keeps what crosses it in $OUT/NAME.pcap, until capture_end NAME.
capture() {
    rm -f "$OUT/$2.pcap"
    tcpdump -i "$1" -B 65536 --immediate-mode -U -w "$OUT/$2.pcap" >/dev/null 2>&1 </dev/null &
    echo $! >"/run/capture.$2"
    until_true 10 test -s "$OUT/$2.pcap"
}

capture_end() {
    read -r _pid <"/run/capture.$1"
    # It ends without what it has not read yet.
    sleep 1
    kill "$_pid"
    until_true 10 ended "$_pid"
}

# settled NAME: waits until a capture has not grown for three seconds. On a busy machine, tcpdump is so far
# behind that the end would be missing.
settled() {
    _quiet=0
    _before=
    while [ $_quiet -lt 3 ]; do
        sleep 1
        _size=$(stat -c %s "$OUT/$1.pcap")
        if [ "$_size" = "$_before" ]; then
            _quiet=$((_quiet + 1))
        else
            _quiet=0
        fi
        _before=$_size
    done
}

# ended PID: nobody but this check's own shell could wait for it.
ended() {
    ! kill -0 "$1" 2>/dev/null
}

# harmless [-e PATTERN]...: without what a kernel says that nobody has to mind. The patterns match
# messages to their end.
# shellcheck disable=SC2016  # `$` is for grep
harmless() {
    grep -vE \
        -e 'siw: loading out-of-tree module taints kernel\.$' \
        -e 'siw: module verification failed: signature and/or required key missing' \
        -e 'iwpm_register_pid: Unable to send a nlmsg \(client = 2\)$' \
        -e 'NFS: SECINFO: security flavor [0-9]+ is not supported$' \
        -e 'hrtimer: interrupt took [0-9]+ ns$' \
        "$@"
}

# without_split_trailers: without siw's complaints of CRCs that it has put together wrongly itself
# (README.md): the trailer came in two parts, and siw wrote the second over the beginning of the first.
# So what it takes for the sender's CRC begins with the end of the right one; in its hexadecimal digits,
# of a number that lies in memory from its lowest byte on, it ends with the beginning. Any other CRC
# error stays. After such a one, the other end may report the TERMINATE that says so.
without_split_trailers() {
    awk '
        function split_trailer(got, own, n) {
            for (n = 2; n <= 6; n += 2)
                if (substr(got, 9 - n) == substr(own, 1, n)) return 1
            return 0
        }
        match($0, /siw: crc error\. in: [0-9a-f]+, own [0-9a-f]+, op [0-9]+$/) {
            words = split(substr($0, RSTART), word, /[ ,]+/)
            if (words == 9 && split_trailer(word[5], word[7])) { forgiven = 1; next }
        }
        forgiven && /siw: got TERMINATE\. layer 2, type 0, code 2$/ { next }
        { print }'
}

# What is trouble at any level.
TROUBLE='BUG:|WARNING:|Oops|Call Trace|general protection|refcount|blocked for more than|not responding'

# What the kernel's log has where the lane begins.
MARK='lab: the lane begins'

# lab_begins: marks the kernel's log, at a level (information) that is no trouble itself. Outside of a
# guest $LAB_KMSG is a file.
lab_begins() {
    echo "<6>$MARK" >"${LAB_KMSG:-/dev/kmsg}"
}

# kernel_log_clean [-e PATTERN]...: since lab_begins, and but for what is listed here and what the
# patterns match, the kernel has given no warning and no error, and reported no trouble at any level.
kernel_log_clean() {
    # Each line with its facility and level.
    _said=$(dmesg --decode | awk -v mark="$MARK" 'begun; index($0, mark) { begun = 1; print }')
    # Where the mark is lost, other messages are, too.
    if [ -z "$_said" ]; then
        echo "the kernel's log does not go back to where the lane began"
        return 1
    fi
    _bad=$(printf '%s\n' "$_said" |
        grep -E "^[a-z]+ *:(emerg|alert|crit|err|warn) *:|$TROUBLE" | without_split_trailers |
        harmless "$@" || true)
    [ -z "$_bad" ] || {
        printf '%s\n' "$_bad"
        return 1
    }
}
