#!/usr/bin/env bash
# boot: --root --backend tcg --cpus 4 --timeout 1200
# CPU limits and weights under a stock kernel with several CPUs and all controllers delegated.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"

mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >/etc/systemd/system/user@.service.d/delegate.conf
systemctl daemon-reload
systemctl restart user@1000.service
cat >/tmp/dev.sh <<'END'
  yes "install.sh" install_slotd --cgroup-base auto
  sbatch -W -o out -c 2 --wrap 'nproc; taskset -pc 0-3 $$ >/dev/null; nproc; cat "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../cpuset.cpus.effective"' >/dev/null
  is "a job of two CPUs cannot use more of them" "$(tr '\n' ' ' <out)" "2 2 0-1 "
  # Two jobs with one CPU each, and work for two.
  spin='for i in 1 2; do (while :; do :; done) & done; echo begun >begun.$SLURM_JOB_ID; wait'
  a=$(sbatch --parsable -o /dev/null --mem 100M --wrap "$spin")
  b=$(sbatch --parsable -o /dev/null --mem 100M --wrap "$spin")
  until_true eval "[ -e begun.$a ] && [ -e begun.$b ]"
  jobs=/sys/fs/cgroup$(systemctl --user show -p ControlGroup --value slotd-jobs.service)
  # CPU time and cpu.max periods as counted by the kernel, read at the same time. The clock of a
  # guest on a busy host is not reliable.
  period=$(cut -d' ' -f2 "$jobs/jobs/job_$a/cpu.max")
  account() { sed -n 's/^\(usage_usec\|nr_periods\) //p' "$jobs/jobs/job_$1/cpu.stat" | tr '\n' ' '; }
  share() { # usage before, usage now: percent of a CPU
    echo $((($3 - $1) * 100 / (($4 - $2) * period)))
  }
  a0=$(account "$a") b0=$(account "$b")
  until_true eval "(( \$(account $a | cut -d' ' -f2) > ${a0#* } + 80 && \$(account $b | cut -d' ' -f2) > ${b0#* } + 80 ))"
  # shellcheck disable=SC2046,SC2086
  of_a=$(share $a0 $(account "$a")) of_b=$(share $b0 $(account "$b"))
  printf 'two jobs with one CPU each and work for two: %d%% and %d%% of a CPU\n' "$of_a" "$of_b"
  yes "neither uses more than its CPU" test "$of_a" -le 105 -a "$of_b" -le 105
  scancel "$a" "$b"
  # A running job gives up a CPU and gets it back, and the kernel enforces its limits.
  d=$(sbatch --parsable -o /dev/null -c 2 --mem 100M --wrap "$spin")
  until_true eval "[ -e begun.$d ]"
  limits() { cat "$jobs/jobs/job_$d/"{cpuset.cpus.effective,cpu.max,memory.max} | tr '\n' ' '; }
  resized_share() {
    local from
    from=$(account "$d")
    until_true eval "(( \$(account $d | cut -d' ' -f2) > ${from#* } + 40 ))"
    # shellcheck disable=SC2046,SC2086
    share $from $(account "$d")
  }
  is "a job of two CPUs has matching limits" "$(limits)" "0-1 200000 100000 104857600 "
  at_two=$(resized_share)
  scontrol update "JobId=$d" NumCPUs=1 MinMemoryNode=50
  is "limits follow a job that shrinks" "$(limits)" "0 100000 100000 52428800 "
  at_one=$(resized_share)
  scontrol update "JobId=$d" NumCPUs=2 MinMemoryNode=100
  is "limits follow a job that grows" "$(limits)" "0-1 200000 100000 104857600 "
  at_two_again=$(resized_share)
  printf 'a job with two CPUs, then one, then two: %d%%, %d%% and %d%% of a CPU\n' "$at_two" "$at_one" "$at_two_again"
  yes "its CPU usage follows" test "$at_two" -gt 130 -a "$at_one" -le 105 -a "$at_two_again" -gt 130
  scancel "$d"
  # CPUs that are shared: a job of two CPUs and two jobs of one, on two CPUs.
  printf '[[partition]]\nname = "crowd"\ncpus = "0-1"\nover_subscribe = "FORCE:2"\n' >~/.config/slotd/slotd.toml
  scontrol reconfigure
  wide=$(sbatch --parsable -o /dev/null --mem 100M -c 2 --wrap "$spin")
  b=$(sbatch --parsable -o /dev/null --mem 100M --wrap "$spin")
  c=$(sbatch --parsable -o /dev/null --mem 100M --wrap "$spin")
  until_true eval "[ -e begun.$wide ] && [ -e begun.$b ] && [ -e begun.$c ]"
  spent() { account "$1" | cut -d' ' -f1; }
  w0=$(spent "$wide") b0=$(spent "$b") c0=$(spent "$c")
  until_true eval "(( \$(spent $wide) > $w0 + 4000000 ))"
  w=$(($(spent "$wide") - w0)) b1=$(($(spent "$b") - b0)) c1=$(($(spent "$c") - c0)) all=$((w + b1 + c1))
  printf 'two oversubscribed CPUs: the job of two uses %d%%, the jobs of one %d%% and %d%% of the total\n' \
    $((w * 100 / all)) $((b1 * 100 / all)) $((c1 * 100 / all))
  is "cpu.weight is proportional to CPUs" "$(cat "$jobs/jobs/job_$wide/cpu.weight" "$jobs/jobs/job_$b/cpu.weight" | tr '\n' ' ')" "200 100 "
  scancel "$wide" "$b" "$c"
  rm ~/.config/slotd/slotd.toml
  echo 'SLOTD_IO_WEIGHT="50"' >>~/.config/slotd/slotd.env
  systemctl --user restart slotd.service
  sbatch -W -o out -c 3 --wrap 'cat "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../io.weight"' >/dev/null
  is "io.weight is proportional to CPUs" "$(cat out)" "default 150"
END
as_dev '. /tmp/dev.sh' || fails=1
finish
