"""GNU parallel: as a work queue in a batch script, to start steps, and to submit jobs."""

import pathlib

from check import check, lines, run, states

BATCH = """#!/bin/bash
#SBATCH --job-name=fill --ntasks=1 --cpus-per-task=4 --output=fill.out
parallel -j "$SLURM_CPUS_PER_TASK" --joblog fill.log 'echo {} squared is $(({} * {})) >fill.{}' ::: 1 2 3 4 5 6 7 8 9
"""
pathlib.Path("fill.sh").write_text(BATCH)
run("sbatch", "-W", "fill.sh")
check("a batch script", [lines(f"fill.{i}")[0] for i in range(1, 10)], [f"{i} squared is {i * i}" for i in range(1, 10)])
check("its log", sorted(row.split("\t")[6] for row in lines("fill.log")[1:]), ["0"] * 9)

STEPS = """#!/bin/bash
#SBATCH --ntasks=4
srun="srun --exact -n1 -N1 --mem=100"
parallel --delay .01 -j "$SLURM_NTASKS" "$srun sh -c 'echo {1} \\$SLURM_STEP_NUM_TASKS >step.{1}; exit {2}'" ::: 1 2 3 4 5 6 :::+ 0 0 0 0 0 3
echo $? >steps.code
"""
pathlib.Path("steps.sh").write_text(STEPS)
job = run("sbatch", "-W", "--parsable", "steps.sh").strip()
check("steps", [lines(f"step.{i}") for i in range(1, 7)], [[f"{i} 1"] for i in range(1, 7)])
rows = run("sacct", "-n", "-P", "-o", "JobID,State", "-j", ",".join(f"{job}.{i}" for i in range(7))).split()
check("their records", sorted(row.split("|")[1] for row in rows), ["COMPLETED"] * 5 + ["FAILED"])
check("number of failures", lines("steps.code"), ["1"])

run("parallel", "-q", "-j3", "sbatch", "-W", "-J", "one-{}", "-o", "one.{}", "--wrap", "echo {}", ":::", "a", "b c", "d")
check("jobs", [lines(f"one.{name}") for name in ("a", "b c", "d")], [["a"], ["b c"], ["d"]])
check("their states", states("--name", "one-a,one-d"), ["COMPLETED"] * 2)
