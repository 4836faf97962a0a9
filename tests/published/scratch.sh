#!/bin/bash
#SBATCH --job-name=scratch
#SBATCH --output=scratch.log
#SBATCH --time=10

set -euo pipefail
SCRATCH=${TMPDIR:-/tmp}/scratch.$SLURM_JOB_ID
mkdir -p "$SCRATCH"
cleanup() {
    cp -p "$SCRATCH"/*.result "$SLURM_SUBMIT_DIR"/
    rm -rf "$SCRATCH"
    echo "copied back from $SCRATCH"
}
trap cleanup EXIT
cp input.dat "$SCRATCH"/
cd "$SCRATCH"
tr a-z A-Z < input.dat > upper.result
