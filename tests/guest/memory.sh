#!/usr/bin/env bash
# boot: --timeout 600 --mem 1500
# A job that uses ten times its memory limit, and another job beside it.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"
cd || exit 1
yes "install.sh" install_slotd --cgroup-base auto

neighbour=$(sbatch --parsable -o near --mem 100M --wrap 'helper eat 50; echo begun; until [ -e go ]; do sleep 0.1; done; helper eat 50 && echo well')
until_true grep -q begun near
# Measured from the first instruction of the allocator to the recorded end, without the time that
# it takes to fill the limit: an emulated processor needs most of a second for that. A busy host may
# delay one attempt, but not all three.
now() { echo "${EPOCHREALTIME/./}"; }
yes "memory is filled in one call" eval 'helper fill 100 >filled'
alone=$((($(tail -n 1 filled) - $(head -n 1 filled)) / 1000))
wall=1000000
for _ in 1 2 3; do
  job=$(sbatch -W --parsable -o far --mem 100M --wrap 'exec helper fill 1000')
  end=$(now)
  took=$(((end - $(head -n 1 far)) / 1000))
  is "the job is OUT_OF_MEMORY" "$(state "$job")" OUT_OF_MEMORY
  if ((took < wall)); then wall=$took; fi
done
printf 'a job of 100 MB that fills 1000 MB: %s, %s ms after its first instruction; filling 100 MB takes %s ms here\n' \
  "$(sacct -nXP -j "$job" -o State,ExitCode)" "$wall" "$alone"
yes "it ends within a second of reaching its limit" test "$((wall - alone))" -le 1000
touch go
state_is "the other job" "$neighbour" COMPLETED
has "is untouched" "$(cat near)" well
yes "and so is the daemon" test "$(systemctl --user show -p NRestarts --value slotd.service)" = 0
is "the OOM killer kills jobs before the daemon" \
  "$(sbatch -W -o out --wrap 'cat /proc/self/oom_score_adj' >/dev/null; cat out)" 500
yes "the daemon's own score is lower" test "$(cat "/proc/$(systemctl --user show -p MainPID --value slotd.service)/oom_score_adj")" -lt 500
finish
