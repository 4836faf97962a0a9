#!/usr/bin/env bash
# A start in the future.
. "$(dirname "$0")/lib.sh"

later=$(sbatch --parsable --begin now+10minutes --wrap 'echo delayed')
expect "in the queue" "PENDING BeginTime" "$(squeue -h -j "$later" -o '%T %r')"
squeue --start -j "$later"
scancel "$later"

before=$(date +%s)
sbatch -W --begin now+2 -o time.out --wrap 'date +%s'
expect "started after two seconds" yes "$( (($(cat time.out) >= before + 2)) && echo yes || echo no)"
