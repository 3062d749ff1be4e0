# Read by the shell of `lab shell`.
# shellcheck shell=bash
. "${LAB:-/lab}/guest/lib.sh"
. "$LAB/lane.sh"
exec 3>&1
PS1='guest \w \$ '
echo "The functions of guest/*.sh and of lane $LANE are here: load_modules verbs; wire_up; verbs_up siw"
