#!/usr/bin/env bash
# sbatch -W and srun exit with the exit code of their job.
. "$(dirname "$0")/lib.sh"

code=0
sbatch -W -o none.out --wrap 'exit 7' || code=$?
expect "exit code of sbatch -W" 7 "$code"

code=0
srun -- sh -c 'exit 9' || code=$?
expect "exit code of srun" 9 "$code"
