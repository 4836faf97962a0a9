#!/bin/bash -l
#SBATCH --job-name=conda
#SBATCH --account=proj
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=1G
#SBATCH --time=0-00:10
#SBATCH --output=conda_%j.out
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=someone@example.com

module purge
module load gcc/12.2 cuda/12.1

source "$(conda info --base)/etc/profile.d/conda.sh"
conda activate torch

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun python -u analysis.py "$@"
