#!/usr/bin/env bash
# A job that needs a feature is refused on a machine without it. SLOTD_FEATURES lists the machine's
# features.
. "$(dirname "$0")/lib.sh"

sbatch -W -o cpu.out --constraint cpu --wrap 'echo ran'
expect "a feature of every machine" ran "$(cat cpu.out)"

code=0
message=$(sbatch --constraint quantum --wrap 'echo never' 2>&1) || code=$?
echo "$message"
expect "exit code for a missing feature" 1 "$code"
