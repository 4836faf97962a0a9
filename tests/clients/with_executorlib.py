"""executorlib: calls as jobs with dependencies, calls as concurrent long-lived steps within a job, and a call that raises an exception."""

import pathlib
import sys

from check import all_jobs, check, lines, run
from executorlib import SlurmClusterExecutor

INSIDE = """
from executorlib import SlurmJobExecutor


def where(x):
    import os

    return x * x, os.environ["SLURM_STEP_ID"]


if __name__ == "__main__":
    with SlurmJobExecutor(max_workers=3, block_allocation=True, hostname_localhost=True) as executor:
        answers = [future.result() for future in [executor.submit(where, x) for x in range(30)]]
    print("squares", [square for square, _ in answers] == [x * x for x in range(30)], "steps", len({step for _, step in answers}) <= 3)
    with SlurmJobExecutor(max_cores=3, hostname_localhost=True) as executor:
        first = executor.submit(sum, [1, 2], resource_dict={"cores": 1})
        last = executor.submit(sum, [first, first], resource_dict={"cores": 1, "slurm_cmd_args": ["--mem=100M"]})
        print("sum", last.result())
"""


def add(a, b):
    import os

    return a + b, os.environ["SLURM_CPUS_ON_NODE"]


def double(found):
    return found[0] * 2, found[1]


def fail():
    raise ValueError("expected failure")


def main():
    asked = {"cores": 1, "partition": "cpu", "run_time_max": 600, "memory_max": 1}
    with SlurmClusterExecutor(cache_directory="cache", resource_dict=asked) as executor:
        first = executor.submit(add, 3, 4)
        last = executor.submit(double, first)
        other = executor.submit(add, 30, 40)
        check("a call that another one depends on", (first.result(), last.result()), ((7, "1"), (14, "1")))
        check("an independent call", other.result(), (70, "1"))
        check("a call that raises", str(executor.submit(fail).exception()), "expected failure")
    found = all_jobs("Timelimit,ReqMem")
    check("requested resources", set(found), {"00:10:00|1G"})
    pathlib.Path("inside.py").write_text(INSIDE)
    pathlib.Path("inside.sh").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=4 --output=inside.out --error=inside.err\n{sys.executable} inside.py\n"
    )
    run("sbatch", "-W", "inside.sh")
    check("steps of a job", lines("inside.out"), ["squares True steps True", "sum 6"])


if __name__ == "__main__":
    main()
