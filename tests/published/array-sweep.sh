#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --output=logs/%x_%A_%a.out
#SBATCH --array=0-5%2
#SBATCH --cpus-per-task=1
#SBATCH --mem=500M
#SBATCH --time=00:10:00

learning_rates=(0.1 0.01 0.001)
seeds=(1 2)
lr=${learning_rates[$((SLURM_ARRAY_TASK_ID / ${#seeds[@]}))]}
seed=${seeds[$((SLURM_ARRAY_TASK_ID % ${#seeds[@]}))]}

echo "Task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT: lr=$lr seed=$seed"
python train.py --lr "$lr" --seed "$seed" --out "results/$lr-$seed"
