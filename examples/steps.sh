#!/usr/bin/env bash
# Steps in a batch job: each srun is a step with its own entry in sacct.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable -W -o steps.out "$jobs/steps.sh")

expect "output" "prepare
rank 0
rank 1" "$(cat steps.out)"
expect "steps" "$id.0 prepare COMPLETED
$id.1 work COMPLETED" "$(sacct -n -P -o JobID,JobName,State -j "$id" | grep -E '^[0-9]+\.[0-9]' | tr '|' ' ')"
