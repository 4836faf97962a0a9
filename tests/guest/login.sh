#!/usr/bin/env bash
# boot: --root --timeout 900
# Without lingering, the user's service manager stops at the last logout and starts at the next
# login. Jobs are terminated properly, and the first command finds a daemon.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"

rm -f /var/lib/systemd/linger/dev
as_dev 'yes "install.sh" install_slotd
  sbatch --parsable -o /dev/null --wrap "trap \"echo told >told; exit\" TERM; echo begun >begun; while :; do sleep 0.1; done" >job
  until_true test -e begun' || fails=1
systemctl stop user@1000.service
as_dev 'is "the first command after a login finds a daemon" "$(squeue -h 2>&1)" ""
  is "the job was terminated with a signal" "$(cat told)" told
  is "and its state is" "$(state "$(cat job)")" NODE_FAIL' || fails=1
finish
