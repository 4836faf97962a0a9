#!/bin/bash
#SBATCH -J openmp -o openmp.out
#SBATCH -n 1 -c 3
#SBATCH --hint=multithread

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
export OMP_PROC_BIND=true OMP_PLACES=threads
echo "threads $OMP_NUM_THREADS, cpus $SLURM_CPUS_ON_NODE, per node $SLURM_JOB_CPUS_PER_NODE"
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" ./solve
