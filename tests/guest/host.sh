#!/usr/bin/env bash
# boot: --root --cpus 1 --timeout 900
# The queue as seen by the host: priorities in the journal, settings for OOM killers, the notify
# hook. And the host as seen by the queue: a busy loop outside the queue, on the only CPU.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"

cat >/tmp/dev.sh <<'END_OF_DEV'
  mkdir -p ~/.config/slotd
  printf '%s\n' 'SLOTD_MEMORY_MB="8192"' 'SLOTD_KILL_WAIT="20"' 'SLOTD_CPU_FOREIGN="avoid"' 'SLOTD_CORES="1"' \
    'SLOTD_NOTIFY_CMD="notify-send slotd \"\$SLOTD_JOB_ID \$SLOTD_JOB_STATE\""' >~/.config/slotd/slotd.env
  yes "install.sh" install_slotd --cgroup-base auto

  pid=$(systemctl --user show -p MainPID --value slotd.service)
  is "systemd-oomd avoids the daemon" "$(systemctl --user show -p ManagedOOMPreference --value slotd.service)" avoid
  is "but not the jobs" "$(systemctl --user show -p ManagedOOMPreference --value slotd-jobs.service)" none
  unit=/sys/fs/cgroup$(systemctl --user show -p ControlGroup --value slotd.service)
  printf 'attribute read by systemd-oomd for the daemon: user.oomd_avoid=%s\n' \
    "$(python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.oomd_avoid").decode())' "$unit" 2>&1 | tail -n 1)"
  sbatch -W -o out --wrap 'cat /proc/self/oom_score_adj' >/dev/null
  yes "the OOM killer kills a job before the daemon" test "$(cat out)" -gt "$(cat "/proc/$pid/oom_score_adj")"

  job=$(sbatch -W --parsable -o /dev/null --wrap true)
  notifications=~/.local/state/notifications.jsonl
  until_true grep -q "\"$job COMPLETED\"" "$notifications"
  has "the hook notifies the desktop" "$(cat "$notifications")" "\"$job COMPLETED\""

  sh -c 'while :; do :; done' &
  busy=$!
  # A load measured before it began is used for two seconds.
  until_true eval '(( $(ps -o cputimes= -p "$busy") >= 3 ))'
  # Polling commands would count as load, too.
  sbatch -W --parsable -o /dev/null --wrap true >waiting &
  waits=$!
  until_true test -s waiting
  job=$(cat waiting)
  reason() { [[ $(squeue -h -j "$job" -o %r) == Resources ]]; }
  until_true reason
  has "a job waits for a loop outside the queue" "$(scontrol show job "$job")" "SystemComment=processes\\040outside\\040jobs\\040use"
  has "and the node reports it" "$(scontrol show node)" "CPUForeign=1"
  kill "$busy"
  wait "$waits"
  state_is "the job after the loop has ended" "$job" COMPLETED
  # A job's own load does not count as foreign.
  job=$(sbatch --parsable -o /dev/null --wrap 'echo begun >begun; while :; do :; done')
  until_true test -e begun
  echo 'SLOTD_CPUS="2"' >>~/.config/slotd/slotd.env
  printf 'scontrol reconfigure: %s\n' "$(scontrol reconfigure 2>&1)"
  is "reconfigure rereads the settings" "$(sinfo -h -o %c)" 2
  next=$(sbatch -W --parsable -o /dev/null --wrap true)
  state_is "the load of a job does not block other jobs" "$next" COMPLETED
  is "no foreign load meanwhile" "$(scontrol show node | grep -o 'CPUForeign=[0-9]*')" CPUForeign=0
  scancel "$job"
END_OF_DEV
as_dev '. /tmp/dev.sh' || fails=1
logged() { journalctl -q _SYSTEMD_USER_UNIT=slotd.service -p "$1..$1" -o cat; }
has "a warning has its priority in the journal" "$(logged warning)" "SLOTD_CORES is not a slotd setting"
has "and so does an informational message" "$(logged info)" " started in "
is "and the text contains no level" "$(logged info | grep -c '^<6>\|INFO')" 0
finish
