#!/usr/bin/env bash
# A command for each job that ends: SLOTD_NOTIFY_CMD of the daemon. This example runs a daemon of its own for it, which
# is also how to do without the installer.
. "$(dirname "$0")/lib.sh"

export SLOTD_ROOT=$workdir/root
SLOTD_NOTIFY_CMD="echo \"\$SLOTD_JOB_ID \$SLOTD_JOB_NAME \$SLOTD_JOB_STATE\" >>'$workdir/notes'" \
  slotd daemon 2>daemon.log &
daemon=$!
trap 'kill "$daemon"; wait "$daemon" || true; rm -rf "$workdir"' EXIT
answers() { sinfo >sinfo.out 2>&1 && echo yes || echo no; }
until_is yes answers

touch notes
sbatch -W -J nice -o /dev/null --wrap true
until_is "1 nice COMPLETED" cat notes
expect "told" "1 nice COMPLETED" "$(cat notes)"
