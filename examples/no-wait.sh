#!/usr/bin/env bash
# srun --no-wait: srun returns at once, and the daemon runs the command.
. "$(dirname "$0")/lib.sh"

line=$(srun --no-wait -o run.out -- echo later)
id=${line##* }
expect "srun" "Submitted run job $id" "$line"
until_is COMPLETED state_of "$id"
expect "run.out" later "$(cat run.out)"
