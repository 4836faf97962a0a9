#!/usr/bin/env bash
# No group of jobs fills the host: only one fit runs at a time, and later jobs overtake the other
# fits.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=2 <<'EOF'
[[limit]]
name = "fit*"
jobs = 1
EOF

running() { squeue -h -t R -o %j -S i | paste -s -d ' '; }
for name in fit-1 fit-2 other; do
  sbatch -J $name -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
done
until_is "fit-1 other" running
expect "one CPU is left for other jobs" "fit-1 other" "$(running)"
expect "reason of the second fit" "AssocMaxJobsLimit" "$(squeue -h -t PD -o %r)"
scancel -n fit-1
until_is "fit-2 other" running
expect "and starts after the first one" "fit-2 other" "$(running)"
