#!/bin/bash
#SBATCH --job-name=resumable
#SBATCH --output=resumable.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --time=01:00:00

requeue() {
    echo "caught USR1, requeue $SLURM_JOB_ID"
    kill -TERM "$PID"
    wait "$PID"
    scontrol requeue "$SLURM_JOB_ID"
}
trap requeue USR1

echo "start ${SLURM_RESTART_COUNT:-0}"
./solver &
PID=$!
wait $PID
