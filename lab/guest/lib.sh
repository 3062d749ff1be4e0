# All that lanes can use. POSIX shell; functions only, as every check reads it anew.
# shellcheck shell=sh

OUT=/lab/out # what is kept on the host
. /lab/env.sh
. /lab/guest/checks.sh
. /lab/guest/host.sh
. /lab/guest/verbs.sh
. /lab/guest/nfs.sh
