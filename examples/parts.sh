#!/usr/bin/env bash
# Parts of the host for certain jobs: partitions over chosen CPUs. Their owner can close and open
# them.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=2 <<'EOF'
[[partition]]
name = "short"
max_time = "10"

[[partition]]
name = "long"
max_cpus_per_node = 1
EOF

running() { squeue -h -t R -o %P -S i | paste -s -d ' '; }
reason() { squeue -h -t PD -o %r; }
sbatch -p long -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
sbatch -p long -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
sbatch -p short -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
until_is "long short" running
expect "one CPU is reserved for short jobs" "long short" "$(running)"
expect "reason of the second long job" "Resources" "$(reason)"
scontrol update PartitionName=long State=DOWN
expect "its reason while its partition is closed" "PartitionDown" "$(reason)"
scontrol reconfigure
expect "the partition after a reconfigure" "up" "$(sinfo -h -p long -o %a)"
