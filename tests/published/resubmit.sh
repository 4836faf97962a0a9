#!/bin/bash
#SBATCH --job-name=again
#SBATCH --output=again.log
#SBATCH --open-mode=append
#SBATCH --time=00:10:00

# Goes on in a job of its own until the work is done.
STEP=${1:-1}
MAX=3
echo "step $STEP of $MAX in job $SLURM_JOB_ID"
if [ "$STEP" -lt "$MAX" ]; then
    cd "$SLURM_SUBMIT_DIR"
    sbatch --dependency=afterany:"$SLURM_JOB_ID" resubmit.sh $((STEP + 1))
fi
