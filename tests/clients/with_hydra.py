"""hydra's submitit launcher: a sweep as an array, with a result and a directory for each combination, and a failing combination."""

import pathlib
import subprocess
import sys

from check import all_jobs, becomes, check, lines, run

pathlib.Path("app.py").write_text(
    """
import os, pathlib
import hydra

@hydra.main(version_base=None, config_path=None, config_name=None)
def main(cfg):
    if cfg.get("bad") == 1:
        raise RuntimeError("expected failure")
    pathlib.Path("result").write_text(f"{cfg.x * cfg.y} {os.environ['SLURM_ARRAY_TASK_ID']} {os.environ['SLURM_CPUS_PER_TASK']}")

main()
"""
)
launcher = [
    "hydra.job.chdir=true",
    "hydra/launcher=submitit_slurm",
    "hydra.launcher.timeout_min=5",
    "hydra.launcher.cpus_per_task=2",
    "hydra.launcher.mem_gb=1",
    "hydra.launcher.array_parallelism=2",
    "hydra.launcher.name=a_sweep",
]
run(sys.executable, "app.py", "--multirun", "hydra.sweep.dir=sweep", *launcher, "+x=2,3", "+y=5,7")
check("a sweep", [lines(f"sweep/{i}/result")[0] for i in range(4)], ["10 0 2", "14 1 2", "15 2 2", "21 3 2"])
becomes("its jobs", lambda: all_jobs("JobName,AllocCPUS,State"), ["a_sweep|2|COMPLETED"] * 4)
logs = sorted(path.name for path in pathlib.Path("sweep/.submitit").glob("*_0/*") if path.suffix in (".out", ".err", ".pkl"))
check("its logs", [name.split("_", 2)[2] for name in logs], ["0_log.err", "0_log.out", "0_result.pkl", "submitted.pkl"])
words = [sys.executable, "app.py", "--multirun", *launcher, "+x=1", "+y=1", "+bad=0,1"]
bad = subprocess.run(words, capture_output=True, text=True)
check("a failure", (bad.returncode != 0, "expected failure" in bad.stderr), (True, True))
