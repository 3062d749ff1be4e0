#!/bin/sh
# Runs the lane: the function `lane` of its script. A command that fails outside of a check ends it,
# which the host takes for a failure of the lab.
set -eu
. /lab/guest/lib.sh
. /lab/lane.sh
mkdir -p /usr/local/bin
for program in /lab/bin/*; do
    [ ! -e "$program" ] || install "$program" /usr/local/bin/
done
if [ -n "${LAB_SHELL:-}" ]; then
    stty sane
    exec bash --rcfile /lab/guest/shell.sh -i
fi
# Checks have their output in files; what is for the host goes here.
exec 3>&1
lane
