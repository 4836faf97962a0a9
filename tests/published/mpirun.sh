#!/bin/bash
#SBATCH --job-name=mpi
#SBATCH --output=mpi.out
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --mem-per-cpu=100M
#SBATCH --time=00:10:00

module load openmpi
cd "$SLURM_SUBMIT_DIR"
echo "Running on $SLURM_JOB_NUM_NODES node(s): $SLURM_JOB_NODELIST, $SLURM_NTASKS tasks"
mpirun -np "$SLURM_NTASKS" ./a.out
echo "mpirun ended with $?"
