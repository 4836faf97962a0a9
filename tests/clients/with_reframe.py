"""ReFrame: checks as jobs with a dependency, several tasks with srun, sanity and performance, and a failing check."""

import json
import pathlib
import subprocess

from check import check, run

pathlib.Path("settings.py").write_text(
    """
site_configuration = {
    "systems": [{
        "name": "here", "hostnames": [".*"],
        "partitions": [{"name": "cpu", "scheduler": "slurm", "launcher": "srun", "access": ["--partition=cpu", "--account=lab"],
                        "environs": ["builtin"], "max_jobs": 4}],
    }],
    "environments": [{"name": "builtin"}],
    "logging": [{"handlers": [{"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}],
                 "handlers_perflog": []}],
}
"""
)
pathlib.Path("checks.py").write_text(
    """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Ranks(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "sh"
    executable_opts = ["-c", "'echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURM_CPUS_PER_TASK, speed 42.5'"]
    num_tasks = 3
    num_cpus_per_task = 2
    time_limit = "5m"

    @sanity_function
    def all_there(self):
        return sn.assert_eq(sn.count(sn.findall(r"rank [012] of 3 on 2", self.stdout)), 3)

    @performance_function("MB/s")
    def speed(self):
        return sn.extractsingle(r"speed (\\S+)", self.stdout, 1, float)


@rfm.simple_test
class Others(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    word = parameter(["good", "bad"])
    executable = "echo"

    @run_after("init")
    def wait(self):
        self.depends_on("Ranks")
        self.executable_opts = [self.word]

    @sanity_function
    def is_good(self):
        return sn.assert_found("good", self.stdout)
""".replace("\\\\\\\\", "\\\\")
)
done = subprocess.run(
    ["reframe", "-C", "settings.py", "-c", "checks.py", "-r", "--report-file=report.json", "--prefix=out", "--nocolor"],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
)
print(done.stdout, flush=True)
check("exit code", done.returncode, 1)
cases = json.loads(pathlib.Path("report.json").read_text())["runs"][0]["testcases"]
found = sorted((case["name"].split(" ")[0], case["display_name"].split("=")[-1], case["result"]) for case in cases)
check("results", found, [("Others", "bad", "fail"), ("Others", "good", "pass"), ("Ranks", "Ranks", "pass")])
ranks = next(case for case in cases if case["name"] == "Ranks")
check("performance", [value[0] for value in ranks["perfvalues"].values()], [42.5])
asked = run("sacct", "-X", "-n", "-P", "-o", "AllocCPUS,Timelimit,Account,State", "-j", str(ranks["jobid"])).strip()
check("requested resources", asked, "6|00:05:00|lab|COMPLETED")
