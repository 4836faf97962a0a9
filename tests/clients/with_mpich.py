"""MPICH: mpirun in sbatch and salloc, and srun --mpi=pmi2, start as many ranks as the job has tasks."""

import mpi
from check import check, run

mpi.compiled("mpicc.mpich")
mpi.launched("mpirun.mpich")
check("srun", sorted(run("srun", "--mpi=pmi2", "-n3", "./ranks").splitlines()), mpi.ranks(3))
mpi.batch("steps", "--ntasks=2", "srun --mpi=pmi2 ./ranks", 2)
