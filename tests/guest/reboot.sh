#!/usr/bin/env bash
# boot: --shutdown --timeout 600
# boot: --timeout 600
# boot: --timeout 600
# What becomes of running, suspended, waiting and half-done work: first in an orderly shutdown, then in a loss of power.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"
cd || exit 1
field() { sacct -nXP -j "$1" -o "$2"; }

case $1 in
  1)
    yes "install.sh" install_slotd --cgroup-base auto
    # It needs a moment after SIGTERM, and says that it had it.
    cat >endless.sh <<'END'
#!/bin/bash
trap 'sleep 1; echo "saved $SLURM_JOB_ID" >>saved; exit 0' TERM
echo "$SLURM_JOB_ID" >>begun
while :; do sleep 0.1; done
END
    sbatch --parsable -o /dev/null endless.sh >plain
    sbatch --parsable -o /dev/null --requeue --wrap 'echo "$SLURM_RESTART_COUNT" >>again; [ -n "$SLURM_RESTART_COUNT" ] || sleep 1000' >requeued
    sbatch --parsable -o /dev/null endless.sh >suspended
    sbatch --parsable -o /dev/null -a 0-1%1 --wrap 'echo "$SLURM_ARRAY_TASK_ID" >>array; [ -e halt ] || [ "$SLURM_ARRAY_TASK_ID" = 0 ] || sleep 1000' >half
    sbatch --parsable -o /dev/null -c 4 --wrap 'echo waited' >waiting
    sbatch --parsable -o /dev/null -d "afterany:$(cat plain)" --wrap 'echo after' >after
    until_true eval '[ "$(wc -l <begun)" = 2 ] && [ -e again ] && [ "$(wc -l <array)" = 2 ]'
    yes "suspend" scontrol suspend "$(cat suspended)"
    date +%s >went
    ;;
  2)
    until_true squeue
    is "the running job and the suspended one were told, and had time" "$(sort saved | tr '\n' ' ')" \
      "saved $(cat plain) saved $(cat suspended) "
    is "the running job" "$(field "$(cat plain)" State,ExitCode)" "NODE_FAIL|0:1"
    is "the suspended job" "$(field "$(cat suspended)" State)" NODE_FAIL
    is "the finished part of the array" "$(field "$(cat half)_0" State)" COMPLETED
    is "the other part" "$(field "$(cat half)_1" State)" NODE_FAIL
    state_is "what waited for room" "$(cat waiting)" COMPLETED
    state_is "what waited for the running job" "$(cat after)" COMPLETED
    state_is "what asked to be requeued" "$(cat requeued)" COMPLETED
    is "it ran twice" "$(tr '\n' ' ' <again)" " 1 "
    sbatch --parsable -o /dev/null endless.sh >lost
    until_true grep -qx "$(cat lost)" begun
    sync
    ;;
  3)
    until_true squeue
    is "a job in a loss of power" "$(field "$(cat lost)" State)" NODE_FAIL
    elapsed=$(field "$(cat lost)" ElapsedRaw)
    yes "its time ends with its last trace ($elapsed s)" test "$elapsed" -lt 20
    is "no socket of a step is left" "$(find ~/.local/share/slotd/lib/jobs -type s)" ""
    is "a job runs" "$(sbatch -W -o out --wrap 'echo here' >/dev/null && cat out)" here
    ;;
esac
finish
