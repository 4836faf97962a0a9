#!/usr/bin/env bash
# boot: --root --backend tcg --cpus 4 --timeout 400
# A kernel as users have it, with several CPUs, and all controllers delegated: CPUs, shares, weights.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"

mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >/etc/systemd/system/user@.service.d/delegate.conf
systemctl daemon-reload
systemctl restart user@1000.service
cat >/tmp/dev.sh <<'END'
  yes "install.sh" install_slotd --cgroup-base auto
  sbatch -W -o out -c 2 --wrap 'nproc; taskset -pc 0-3 $$ >/dev/null; nproc; cat "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../cpuset.cpus.effective"' >/dev/null
  is "a job of two CPUs has two, whatever it asks the kernel for" "$(tr '\n' ' ' <out)" "2 2 0-1 "
  # Two jobs of one CPU, each with work for two.
  spin='for i in 1 2; do (while :; do :; done) & done; echo begun >begun.$SLURM_JOB_ID; wait'
  a=$(sbatch --parsable -o /dev/null --mem 100M --wrap "$spin")
  b=$(sbatch --parsable -o /dev/null --mem 100M --wrap "$spin")
  until_true eval "[ -e begun.$a ] && [ -e begun.$b ]"
  jobs=/sys/fs/cgroup$(systemctl --user show -p ControlGroup --value slotd-jobs.service)
  used() { sed -n 's/^usage_usec //p' "$jobs/jobs/job_$1/cpu.stat"; }
  begin=$(date +%s%N) a0=$(used "$a") b0=$(used "$b")
  until_true eval "(( \$(date +%s%N) - $begin > 8000000000 ))"
  wall=$(( ($(date +%s%N) - begin) / 1000 )) a1=$(($(used "$a") - a0)) b1=$(($(used "$b") - b0))
  printf 'two jobs of one CPU with work for two: %d %% and %d %% of a CPU\n' $((a1 * 100 / wall)) $((b1 * 100 / wall))
  yes "neither has more than its CPU" test $((a1 * 100 / wall)) -le 105 -a $((b1 * 100 / wall)) -le 105
  scancel "$a" "$b"
  echo 'SLOTD_IO_WEIGHT="50"' >>~/.config/slotd/slotd.env
  systemctl --user restart slotd.service
  sbatch -W -o out -c 3 --wrap 'cat "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../io.weight"' >/dev/null
  is "the weight for its disks goes by CPUs" "$(cat out)" "default 150"
END
as_dev '. /tmp/dev.sh' || fails=1
finish
