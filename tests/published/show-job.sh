#!/bin/bash
#SBATCH --job-name=about-me
#SBATCH --output=about.log
#SBATCH --time=1:30:00
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --comment="a comment"

scontrol show job "$SLURM_JOB_ID"
LIMIT=$(scontrol show job "$SLURM_JOB_ID" | grep -oP 'TimeLimit=\K\S+')
SCRIPT=$(scontrol show job "$SLURM_JOB_ID" | awk -F= '/Command=/{print $2}')
LEFT=$(squeue -h -j "$SLURM_JOB_ID" -o %L)
NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
echo "limit $LIMIT script $(basename "$SCRIPT") left ${LEFT%%:*} node $NODE"
