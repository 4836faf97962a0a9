#!/usr/bin/env bash
# A signal before the time limit: the job saves its work and exits.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable -W -t 00:00:20 --signal B:USR1@15 -o saved.out "$jobs/checkpoint.sh")
expect "output" "warned, saved" "$(head -n 1 saved.out)"
expect "state of job $id" COMPLETED "$(state_of "$id")"

# Without a handler the limit ends the job.
id=$(sbatch --parsable -W -t 00:00:01 -o /dev/null --wrap 'sleep 600') || true
expect "state of job $id" TIMEOUT "$(state_of "$id")"
