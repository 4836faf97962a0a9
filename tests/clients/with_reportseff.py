"""reportseff: reads sacct's tables of a job, of an array and of all jobs of a user."""

import os
import subprocess

from check import check


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def report(*words):
    """The first two columns of the table: the job and its state."""
    return [line.split()[:2] for line in run("reportseff", "--no-color", *words).splitlines()[1:]]


plain = run("sbatch", "-W", "--parsable", "-n1", "-t5", "-o", "/dev/null", "--wrap", "true").strip()
failed = run("sbatch", "--parsable", "-n1", "-o", "/dev/null", "--wrap", "exit 3").strip()
array = run("sbatch", "-W", "--parsable", "-a", "1-2", "-d", f"afterany:{failed}", "-o", "/dev/null", "--wrap", "true").strip()
check("jobs", report(plain, failed), [[plain, "COMPLETED"], [failed, "FAILED"]])
check("array", sorted(report(array)), [[f"{array}_{i}", "COMPLETED"] for i in (1, 2)])
mine = report("--user", os.environ["USER"], "--format", "+TotalCPU,NodeList,Timelimit")
check("the jobs of a user", [row for row in mine if row[0] in (plain, failed)], [[plain, "COMPLETED"], [failed, "FAILED"]])
