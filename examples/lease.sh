#!/usr/bin/env bash
# A job with --exclusive has all CPUs of the host and fills them as it likes. Processes that it
# leaves behind are killed, and this is reported.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=4 </dev/null

running() { squeue -h -t R -o %j | paste -s -d ' '; }
cat >lease.sbatch <<'EOF'
#!/bin/bash
#SBATCH -J lease -o lease.out --exclusive --mem=64M
echo "$SLURM_JOB_CPUS_PER_NODE CPUs for $SLURM_TASKS_PER_NODE tasks"
srun -n "$SLURM_TASKS_PER_NODE" sh -c 'echo task' | sort | uniq -c | tr -s ' '
sleep 1000 &
touch full
while [ ! -e enough ]; do sleep 0.1; done
EOF
lease=$(sbatch --parsable lease.sbatch)
sbatch -J other -o /dev/null --mem 64M --wrap 'exec sleep 100' >/dev/null
full() { [[ -e full ]] && echo yes || echo no; }
until_is yes full
expect "running jobs" "lease" "$(running)"
expect "its tasks" "4 CPUs for 4 tasks| 4 task" "$(paste -s -d '|' lease.out)"
touch enough
until_is "other" running
expect "job that runs after its end" "other" "$(running)"
expect "its leftover process" "SystemComment=killed 1 leftover process" \
    "$(scontrol show job "$lease" | sed 's|\\040| |g' | grep -o 'SystemComment=.*[^ ]')"
