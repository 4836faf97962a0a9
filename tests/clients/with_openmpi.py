"""Open MPI: mpirun in sbatch and salloc starts as many ranks as the job has tasks, and ends with the code of one that gives up."""

import os

import mpi

# It starts nothing as root unless it is told to.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
mpi.compiled("mpicc.openmpi")
mpi.launched("mpirun.openmpi")
