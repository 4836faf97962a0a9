#!/usr/bin/env bash
# boot: --root --timeout 900
# What the host around the queue sees of it: priorities in the journal, what the killers of memory are told, the notify hook;
# and what the queue sees of the host: a busy loop beside it, on the one CPU.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"

cat >/tmp/dev.sh <<'END_OF_DEV'
  mkdir -p ~/.config/slotd
  printf '%s\n' 'SLOTD_MEMORY_MB="8192"' 'SLOTD_KILL_WAIT="20"' 'SLOTD_CPU_FOREIGN="avoid"' 'SLOTD_CORES="1"' \
    'SLOTD_NOTIFY_CMD="notify-send slotd \"\$SLOTD_JOB_ID \$SLOTD_JOB_STATE\""' >~/.config/slotd/slotd.env
  yes "install.sh" install_slotd --cgroup-base auto

  pid=$(systemctl --user show -p MainPID --value slotd.service)
  is "systemd-oomd is to leave the daemon" "$(systemctl --user show -p ManagedOOMPreference --value slotd.service)" avoid
  is "and not the jobs" "$(systemctl --user show -p ManagedOOMPreference --value slotd-jobs.service)" none
  unit=/sys/fs/cgroup$(systemctl --user show -p ControlGroup --value slotd.service)
  printf 'what systemd-oomd reads of the daemon: user.oomd_avoid=%s\n' \
    "$(python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.oomd_avoid").decode())' "$unit" 2>&1 | tail -n 1)"
  sbatch -W -o out --wrap 'cat /proc/self/oom_score_adj' >/dev/null
  yes "a job goes before the daemon" test "$(cat out)" -gt "$(cat "/proc/$pid/oom_score_adj")"

  job=$(sbatch -W --parsable -o /dev/null --wrap true)
  told=~/.local/state/notifications.jsonl
  until_true grep -q "\"$job COMPLETED\"" "$told"
  has "the hook tells the desktop" "$(cat "$told")" "\"$job COMPLETED\""

  sh -c 'while :; do :; done' &
  busy=$!
  # What was read before it began decides for two seconds.
  until_true eval '(( $(ps -o cputimes= -p "$busy") >= 3 ))'
  # Whoever asks again and again is busy, too.
  sbatch -W --parsable -o /dev/null --wrap true >waiting &
  waits=$!
  until_true test -s waiting
  job=$(cat waiting)
  reason() { [[ $(squeue -h -j "$job" -o %r) == Resources ]]; }
  until_true reason
  has "a job waits for a loop beside the queue" "$(scontrol show job "$job")" "SystemComment=processes\\040that\\040are\\040no\\040job's\\040use"
  has "and the node tells it" "$(scontrol show node)" "CPUForeign=1"
  kill "$busy"
  wait "$waits"
  state_is "when the loop has ended" "$job" COMPLETED
  # A job's own use is no free ride.
  job=$(sbatch --parsable -o /dev/null --wrap 'echo begun >begun; while :; do :; done')
  until_true test -e begun
  echo 'SLOTD_CPUS="2"' >>~/.config/slotd/slotd.env
  printf 'scontrol reconfigure: %s\n' "$(scontrol reconfigure 2>&1)"
  is "reconfigure reads the settings again" "$(sinfo -h -o %c)" 2
  next=$(sbatch -W --parsable -o /dev/null --wrap true)
  state_is "what a job uses keeps no other waiting" "$next" COMPLETED
  is "nobody rides free meanwhile" "$(scontrol show node | grep -o 'CPUForeign=[0-9]*')" CPUForeign=0
  scancel "$job"
END_OF_DEV
as_dev '. /tmp/dev.sh' || fails=1
logged() { journalctl -q _SYSTEMD_USER_UNIT=slotd.service -p "$1..$1" -o cat; }
has "a warning has its priority in the journal" "$(logged warning)" "SLOTD_CORES is no setting"
has "and so has what is only told" "$(logged info)" " serves "
is "and no level in the text" "$(logged info | grep -c '^<6>\|INFO')" 0
finish
