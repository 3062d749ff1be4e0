#!/bin/sh
# One check: a function of the library or of the lane with its arguments, in a process of its own
# that a time-out can end. The first command that fails, fails it.
set -eu
. "${LAB:-/lab}/guest/lib.sh"
. "$LAB/lane.sh"
"$@"
