# Read by the shell of `lab shell`.
# shellcheck shell=bash
. /lab/guest/lib.sh
. /lab/lane.sh
exec 3>&1
PS1='guest \w \$ '
echo "The functions of guest/*.sh and of lane $LANE are here: load_modules verbs; wire_up; verbs_up siw"
