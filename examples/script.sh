#!/usr/bin/env bash
# A batch script: its leading #SBATCH lines are its options.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable -W "$jobs/script-demo.sh")

expect "logs/$id.out" "hello from script mode
job=$id cpus=2" "$(cat "logs/$id.out")"
expect "name of job $id" script-demo "$(sacct -X -n -P -o JobName -j "$id")"
