#!/usr/bin/env bash
# No kind of job fills the host: one fit runs at a time, and who comes behind the others goes before them.
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
expect "a CPU is left to other jobs" "fit-1 other" "$(running)"
expect "the second fit waits for" "AssocMaxJobsLimit" "$(squeue -h -t PD -o %r)"
scancel -n fit-1
until_is "fit-2 other" running
expect "and starts after the first" "fit-2 other" "$(running)"
