#!/usr/bin/env bash
# A batch script with options in its leading #SBATCH lines.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"
mkdir logs # Slurm does not create it

id=$(sbatch --parsable -W "$jobs/script-demo.sh")

expect "logs/$id.out" "hello from script mode
job=$id cpus=2" "$(cat "logs/$id.out")"
expect "name of job $id" script-demo "$(sacct -X -n -P -o JobName -j "$id")"
