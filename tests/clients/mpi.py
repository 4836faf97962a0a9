"""Checks for each MPI: mpirun starts the ranks of a job, and a rank that aborts determines the exit code of the job."""

import pathlib

from check import check, lines, run

SOURCE = pathlib.Path(__file__).parent / "ranks.c"


def ranks(count):
    """Returns the output of this many ranks."""
    return [f"rank {rank} of {count}, sum {count * (count - 1) // 2}" for rank in range(count)]


def compiled(compiler):
    run(compiler, "-o", "ranks", SOURCE)


def batch(what, directives, command, count):
    """Submits a batch script in which the command starts this many ranks, and checks that it runs once."""
    pathlib.Path("mpi.sh").write_text(f"#!/bin/bash\n#SBATCH {directives} --output=mpi.out\necho begun >>{what}.begun\n{command}\n")
    run("sbatch", "-W", "mpi.sh")
    check(what, (sorted(lines("mpi.out")), lines(f"{what}.begun")), (ranks(count), ["begun"]))


def launched(mpirun):
    batch("tasks", "--ntasks=3", f"{mpirun} ./ranks", 3)
    batch("tasks-per-node", "--nodes=1 --ntasks-per-node=4", f"{mpirun} ./ranks", 4)
    batch("fewer", "--ntasks=4", f"{mpirun} -np 2 ./ranks", 2)
    out = run("salloc", "--quiet", "-n2", *mpirun.split(), "./ranks")
    check("salloc", sorted(out.splitlines()), ranks(2))
    pathlib.Path("abort.sh").write_text(f"#!/bin/bash\n#SBATCH --ntasks=2 --output=abort.out\nexec {mpirun} ./ranks 7\n")
    job = run("sbatch", "--parsable", "abort.sh").strip()
    run("sbatch", "-W", "-d", f"afterany:{job}", "-o", "/dev/null", "--wrap", "true")
    check("a rank that aborts", run("sacct", "-X", "-n", "-P", "-o", "State,ExitCode", "-j", job).strip(), "FAILED|7:0")
