#!/usr/bin/env bash
# boot: --timeout 1200
# The installed service under a real user manager: its cgroup, restarts, upgrades and removal.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"
cd || exit 1
manager() { systemctl --user "$@"; }
pid() { manager show -p MainPID --value slotd.service; }

yes "install.sh --cgroup-base auto" install_slotd --cgroup-base auto
is "all units are up" "$(manager is-active slotd.service slotd.socket slotd-jobs.service | sort -u)" active
has "scontrol shows the cgroup base" "$(scontrol show config)" "SlotdCgroupBase         = auto"

sbatch -W -o out --mem 64M -c 2 --wrap 'cat /proc/self/cgroup; cat "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../memory.max"' >/dev/null
has "a job is below the jobs' unit" "$(cat out)" "app.slice/slotd-jobs.service/jobs/job_"
has "its memory is limited" "$(cat out)" "$((64 << 20))"

# Jobs survive restarts and crashes of the daemon.
job=$(sbatch --parsable -o long --wrap 'trap "echo told" TERM; echo begun; until [ -e go ]; do sleep 0.1; done; echo done')
until_true grep -q begun long
yes "the service restarts while a job runs" manager restart slotd.service
yes "and again" manager restart slotd.service
manager stop slotd.service
is "it is stopped" "$(manager is-active slotd.service)" inactive
is "the job was not signalled" "$(cat long)" begun
has "the next command starts the daemon" "$(squeue -h -o '%A %T')" "$job RUNNING"
for _ in 1 2 3 4 5 6 7 8; do
  old=$(pid)
  kill -9 "$old"
  until_true eval "[[ \$(pid) != $old && \$(pid) != 0 ]]"
done
has "it restarts however often it is killed" "$(squeue -h -o '%A %T')" "$job RUNNING"
touch go
state_is "the job survived all of it" "$job" COMPLETED
is "and was never signalled" "$(tr '\n' ' ' <long)" "begun done "

# Stopping the unit of the jobs terminates them, and the next job starts it again.
job=$(sbatch --parsable -o /dev/null --wrap 'sleep 1000')
until_true is_state "$job" RUNNING
manager restart slotd-jobs.service
state_is "a job in the stopped unit" "$job" FAILED
sbatch -W -o out --wrap 'cat /proc/self/cgroup' >/dev/null
has "the next job gets a cgroup again" "$(cat out)" "slotd-jobs.service/jobs/job_"

# Upgrade without losing a request.
for _ in 1 2 3 4 5 6 7 8; do sbatch --parsable -o /dev/null --wrap true || echo lost; done >submitted 2>&1 &
yes "install.sh again, while jobs are submitted" install_slotd
wait
is "each submission got a job ID" "$(grep -c '^[0-9]*$' submitted)" 8

# Commands report invalid settings, and work again once these are fixed, without systemctl.
sed -i 's/SLOTD_CPUS="4"/SLOTD_CPUS="many"/' ~/.config/slotd/slotd.env
manager restart slotd.service 2>/dev/null
restarts=$(manager show -p NRestarts --value slotd.service)
has "a command reports the invalid setting" "$(squeue 2>&1)" 'the daemon cannot start: SLOTD_CPUS="many"'
is "the daemon is not restarted in a loop" "$(manager show -p NRestarts --value slotd.service)" "$restarts"
is "its socket is still there" "$(manager is-active slotd.socket)" active
sed -i 's/SLOTD_CPUS="many"/SLOTD_CPUS="4"/' ~/.config/slotd/slotd.env
yes "the next command works once it is fixed" squeue

yes "uninstall" "$PROGRAMS/slotd" uninstall
is "no unit is left" "$(find ~/.config/systemd -name 'slotd*')" ""
is "no unit is running" "$(manager list-units --plain --no-legend 'slotd*')" ""
finish
