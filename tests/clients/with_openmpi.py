"""Open MPI: mpirun in sbatch and salloc starts as many ranks as the job has tasks, and exits with the code of a rank that aborts."""

import os

import mpi

# By default it refuses to run as root.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
mpi.compiled("mpicc.openmpi")
mpi.launched("mpirun.openmpi")
