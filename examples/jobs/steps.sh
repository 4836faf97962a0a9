#!/usr/bin/env bash
#SBATCH -J steps
#SBATCH -n 2
#SBATCH -t 00:05:00

srun -n 1 -J prepare echo prepare
srun -n 2 -J work sh -c 'echo "rank $SLURM_PROCID"' | sort
