#!/usr/bin/env bash
# --immediate: now or not at all.
. "$(dirname "$0")/lib.sh"

blocker=$(sbatch --parsable --exclusive -o /dev/null --wrap 'sleep 600')
until_is RUNNING state_of "$blocker"
code=0
srun --immediate -- echo never || code=$?
expect "exit code on a busy machine" 1 "$code"
scancel "$blocker"
cancelled() { state_of "$blocker" | cut -d ' ' -f 1; }
until_is CANCELLED cancelled
