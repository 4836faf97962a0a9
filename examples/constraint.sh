#!/usr/bin/env bash
# A job that needs a feature of the machine is refused where there is none. SLOTD_FEATURES lists what there is.
. "$(dirname "$0")/lib.sh"

sbatch -W -o cpu.out --constraint cpu --wrap 'echo ran'
expect "a feature that every machine has" ran "$(cat cpu.out)"

code=0
message=$(sbatch --constraint quantum --wrap 'echo never' 2>&1) || code=$?
echo "$message"
expect "exit code for one that this machine lacks" 1 "$code"
