#!/usr/bin/env bash
# Run a command whenever a job ends: SLOTD_NOTIFY_CMD of the daemon. This example starts its own
# daemon, which also shows how to run slotd without the installer.
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
expect "notified" "1 nice COMPLETED" "$(cat notes)"
