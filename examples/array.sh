#!/usr/bin/env bash
# An array: ten tasks of one job, at most two at a time.
. "$(dirname "$0")/lib.sh"
mkdir logs # Slurm does not create it

id=$(sbatch --parsable -W -J array-demo -a 0-9%2 --mem 64M -o 'logs/%A_%a.out' --wrap 'echo task=$SLURM_ARRAY_TASK_ID')

tasks() { sacct -X -n -P -o JobID -j "$id" | grep -c "^${id}_"; }
until_is 10 tasks
expect "tasks in sacct" 10 "$(tasks)"
expect "output of all tasks" "$(seq -f 'task=%g' 0 9)" "$(cat logs/"${id}"_?.out)"
