#!/usr/bin/env bash
# With --requeue a job that fails runs once more, but not a third time.
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable -W --requeue -o runs.out --open-mode append \
  --wrap 'echo "restarts: ${SLURM_RESTART_COUNT:-0}"; exit 1') || true

expect "runs" "restarts: 0
slotd: the first run was FAILED; --requeue runs the job once more (the setting SLOTD_REQUEUE=slurm turns this off)
restarts: 1" "$(cat runs.out)"
expect "state of job $id" FAILED "$(state_of "$id")"
