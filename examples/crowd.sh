#!/usr/bin/env bash
# More jobs than CPUs: over_subscribe = "FORCE:2" gives each CPU to at most two jobs.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=2 <<'EOF'
[[partition]]
name = "crowd"
over_subscribe = "FORCE:2"
EOF

running() { squeue -h -t R -o %i | wc -l; }
waiting() { squeue -h -t PD -o %r; }
sbatch --array 1-5 -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
until_is 4 running
expect "jobs on two CPUs" 4 "$(running)"
expect "reason of the fifth job" "Resources" "$(waiting)"
expect "OVERSUBSCRIBE of the partition" "FORCE:2" "$(sinfo -h -o %h)"
