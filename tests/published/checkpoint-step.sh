#!/bin/bash
#SBATCH --job-name=ckpt
#SBATCH --output=ckpt.log
#SBATCH --ntasks=2
#SBATCH --signal=TERM@30
#SBATCH --time=60

srun ./worker
echo "srun ended with $?"
