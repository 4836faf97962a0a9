#!/usr/bin/env bash
# A batch job from a command: submit it, wait for its end, read its output.
. "$(dirname "$0")/lib.sh"
mkdir logs # Slurm does not create it

id=$(sbatch --parsable -W -J hello -c 1 --mem 64M -t 00:05:00 -o 'logs/%j.out' --wrap 'echo hello')

expect "logs/$id.out" hello "$(cat "logs/$id.out")"
expect "state of job $id" COMPLETED "$(state_of "$id")"
