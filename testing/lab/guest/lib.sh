# All that lanes can use. POSIX shell; functions only, as every check reads it anew.
# shellcheck shell=sh

LAB=${LAB:-/lab} # the folder of the host
OUT=$LAB/out     # what is kept there
. "$LAB/env.sh"
. "$LAB/guest/checks.sh"
. "$LAB/guest/host.sh"
. "$LAB/guest/verbs.sh"
. "$LAB/guest/nfs.sh"
. "$LAB/guest/ours.sh"
. "$LAB/guest/gateways.sh"
. "$LAB/guest/work.sh"
