#!/usr/bin/env bash
# Inspect the queue, a job, the history and the machine.
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable -J looked-at -c 1 --mem 64M -t 00:10:00 -o /dev/null --wrap 'sleep 600')
until_is RUNNING state_of "$id"

squeue
squeue -l -j "$id"
scontrol show job "$id"
sinfo
sinfo -N -l
expect "squeue with a Slurm format" "$id looked-at R" "$(squeue -h -j "$id" -o '%i %j %t')"
expect "sacct with field names" "$id|looked-at|RUNNING|1" "$(sacct -X -n -P -j "$id" -o JobID,JobName,State,AllocCPUS)"

scancel "$id"
cancelled() { state_of "$id" | cut -d ' ' -f 1; }
until_is CANCELLED cancelled
sacct -j "$id"
