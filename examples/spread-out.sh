#!/usr/bin/env bash
# CPUs that stay empty: the owner keeps one back from all jobs (SLOTD_CPUS=-1), or a job requests
# more than it uses (--cpus-per-task=2 for a program with one thread).
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=3 </dev/null

running() { squeue -h -t R -o %j -S i | paste -s -d ' '; }
sbatch -J large -c 2 -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
sbatch -J small -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
sbatch -J late -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
until_is "large small" running
expect "two jobs on three CPUs" "large small" "$(running)"
expect "CPUs of the large one" 2 "$(squeue -h -n large -o %C)"

# shellcheck disable=SC2154 # set in lib.sh
kept_back() {
  export SLOTD_ROOT=$workdir/kept
  SLOTD_CPUS=-1 SLOTD_GPU_COUNT=0 slotd daemon 2>kept.log &
  local kept=$!
  until_is yes answers
  sinfo -h -o %c
  kill "$kept"
  wait "$kept" || true
}
if (($(nproc) > 1)); then
  expect "all CPUs but one are available" "$(($(nproc) - 1))" "$(kept_back)"
fi
