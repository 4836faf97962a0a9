#!/usr/bin/env bash
# Hold a job, change it, release it.
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable --begin now+1hour -J first -o done.out --wrap 'echo done')
scontrol hold "$id"
expect "held" "PENDING JobHeldUser" "$(squeue -h -j "$id" -o '%T %r')"
scontrol update JobId="$id" JobName=second TimeLimit=02:00:00 StartTime=now
expect "changed" "second 2:00:00" "$(squeue -h -j "$id" -o '%j %l')"
scontrol release "$id"
until_is COMPLETED state_of "$id"
expect "output" "done" "$(cat done.out)"
