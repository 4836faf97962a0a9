#!/usr/bin/env bash
# boot: --shutdown --timeout 600
# boot: --timeout 600
# boot: --timeout 600
# Running, suspended, pending and partly finished work: first in an orderly shutdown,
# then in a power failure.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"
cd || exit 1
field() { sacct -nXP -j "$1" -o "$2"; }

case $1 in
  1)
    yes "install.sh" install_slotd --cgroup-base auto
    # Saves its work, which takes a moment after SIGTERM.
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
    is "the running and the suspended job could save their work" "$(sort saved | tr '\n' ' ')" \
      "saved $(cat plain) saved $(cat suspended) "
    is "the running job" "$(field "$(cat plain)" State,ExitCode)" "NODE_FAIL|0:1"
    is "the suspended job" "$(field "$(cat suspended)" State)" NODE_FAIL
    is "the finished part of the array" "$(field "$(cat half)_0" State)" COMPLETED
    is "the other part" "$(field "$(cat half)_1" State)" NODE_FAIL
    state_is "the job that waited for CPUs" "$(cat waiting)" COMPLETED
    state_is "the job that waited for the running one" "$(cat after)" COMPLETED
    state_is "the job with --requeue" "$(cat requeued)" COMPLETED
    is "it ran twice" "$(tr '\n' ' ' <again)" " 1 "
    sbatch --parsable -o /dev/null endless.sh >lost
    until_true grep -qx "$(cat lost)" begun
    sync
    ;;
  3)
    until_true squeue
    is "a running job after a power failure" "$(field "$(cat lost)" State)" NODE_FAIL
    elapsed=$(field "$(cat lost)" ElapsedRaw)
    yes "its elapsed time ends with its last trace ($elapsed s)" test "$elapsed" -lt 20
    is "no sockets of steps are left" "$(find ~/.local/share/slotd/lib/jobs -type s)" ""
    is "a new job runs" "$(sbatch -W -o out --wrap 'echo here' >/dev/null && cat out)" here
    ;;
esac
finish
