#!/usr/bin/env bash
# boot: --timeout 200 --mem 1500
# A job that wants ten times its memory, and its neighbour.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"
cd || exit 1
yes "install.sh" install_slotd --cgroup-base auto

neighbour=$(sbatch --parsable -o near --mem 100M --wrap 'helper eat 50; echo begun; until [ -e go ]; do sleep 0.1; done; helper eat 50 && echo well')
until_true grep -q begun near
# How fast memory is filled here is a matter of the machine.
begin=$(date +%s%N)
helper eat 100
alone=$((($(date +%s%N) - begin) / 1000000))
begin=$(date +%s%N)
sbatch -W -o far --mem 100M --wrap 'helper eat 1000' >/dev/null
wall=$((($(date +%s%N) - begin) / 1000000))
job=$((neighbour + 1))
printf 'a job of 100 MB that takes 1000 MB: %s, %s ms after its submission; 100 MB are filled in %s ms here\n' \
  "$(sacct -nXP -j $job -o State,ExitCode)" "$wall" "$alone"
is "it is out of memory" "$(state $job)" OUT_OF_MEMORY
touch go
state_is "its neighbour" "$neighbour" COMPLETED
has "is untouched" "$(cat near)" well
yes "and so is the daemon" test "$(systemctl --user show -p NRestarts --value slotd.service)" = 0
is "jobs go before the daemon where the machine has no memory" \
  "$(sbatch -W -o out --wrap 'cat /proc/self/oom_score_adj' >/dev/null; cat out)" 500
yes "the daemon's own score is lower" test "$(cat "/proc/$(systemctl --user show -p MainPID --value slotd.service)/oom_score_adj")" -lt 500
finish
