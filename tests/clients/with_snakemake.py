"""Snakemake: a workflow as jobs with its Slurm executor: wildcards, a rule that is retried, a rule that fails next to others, log files."""

import pathlib
import subprocess
import sys

from check import all_jobs, check, lines

pathlib.Path("Snakefile").write_text(
    """
rule all:
    input: "total"

rule part:
    output: "part.{n}"
    threads: 2
    resources: mem_mb=300, runtime=7, slurm_extra="'--nice=3'"
    shell: "echo {wildcards.n} $SLURM_CPUS_PER_TASK >{output}"

rule flaky:
    output: "flaky"
    retries: 1
    resources: mem_mb=200, runtime=5
    shell: "if [ ! -e tried ]; then touch tried; exit 3; fi; echo $SLURM_JOB_ID >{output}"

rule total:
    input: expand("part.{n}", n=range(2)), "flaky"
    output: "total"
    resources: mem_mb=200, runtime=5
    shell: "cat part.* >{output}; echo once >>begun"

rule bad:
    output: "never"
    shell: "exit 4"
"""
)


common = ["--executor", "slurm", "--jobs", "4", "--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "20"]
logs = ["--slurm-logdir", "logs", "--slurm-keep-successful-logs"]
default = ["--default-resources", "slurm_partition=cpu", "mem_mb=100"]
done = subprocess.run(
    ["snakemake", "--keep-going", "total", "never", *common, *logs, *default],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
)
print(done.stdout, flush=True)
check("a workflow", (lines("total"), lines("begun")), ([f"{n} 2" for n in range(2)], ["once"]))
rows = [row.split("|") for row in all_jobs("Comment,AllocCPUS,ReqMem,Timelimit,State")]
parts = sorted(row for row in rows if row[0].startswith("rule_part"))
check("requested resources", parts, [[f"rule_part_wildcards_{n}", "2", "300M", "00:07:00", "COMPLETED"] for n in range(2)])
check("a retried rule", (pathlib.Path("tried").exists(), lines("flaky")[0].isdigit()), (True, True))
found = sorted(path.parent.relative_to("logs").as_posix() for path in pathlib.Path("logs").rglob("*.log"))
check("log files", sorted(set(found)), ["rule_bad", "rule_flaky", "rule_part/0", "rule_part/1", "rule_total"])
check("a failing rule", (done.returncode, "Error in rule bad" in done.stdout), (1, True))
check("its job", [row[4] for row in rows if row[0] == "rule_bad"], ["FAILED"])
