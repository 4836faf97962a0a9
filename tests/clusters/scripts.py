"""Runs the scripts of examples/ and tests/published here, with slotd, and on a real Slurm, by `-M lab`, and compares what they do.

On both sides a script runs as an ordinary user in a directory of its own. On the second, `sbatch` means `sbatch -M lab`, and so
do the other commands. Compared are the exit code, standard output and all files that appear; job IDs and the schedulers' own
messages are left out. For an example, the results are the lines that begin with "ok: ".
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess

OWN_DAEMON = "starts a slotd of its own with settings of its own"
CONNECTED = "srun and salloc stay connected to their job, so -M refuses them"
MANAGER = "runs sjobmgr, which is a part of slotd"

# Examples that are not run there, with the reason.
NOT_THERE = {
    "cpu-bind": CONNECTED,
    "crowd": OWN_DAEMON,
    "executor": MANAGER,
    "exit-code": CONNECTED,
    "free-lift": OWN_DAEMON,
    "gpu": "slotd's gpu partition allocates a GPU to a job that requests none; that of a cluster does not",
    "graph": MANAGER,
    "immediate": CONNECTED,
    "lease": OWN_DAEMON,
    "limits": OWN_DAEMON,
    "mapping": OWN_DAEMON,
    "no-wait": CONNECTED,
    "notify": OWN_DAEMON,
    "parts": OWN_DAEMON,
    "ranks": CONNECTED,
    "requeue": "slotd runs a job with --requeue once more if it fails; Slurm does not",
    "salloc": CONNECTED,
    "seats": OWN_DAEMON,
    "spread-out": OWN_DAEMON,
    "srun": CONNECTED,
}

# Small programs in place of those that the published scripts call.
PROGRAMS = {
    "python": 'for word; do [ "$last" = --out ] && mkdir -p results && echo "$*" >>"$word"; last=$word; done\n'
              'case "$*" in *tune.py*) until [ -s ray.started ]; do sleep 0.05; done ;; esac\n'
              'echo "python $*${CONDA_DEFAULT_ENV:+ in $CONDA_DEFAULT_ENV}"',
    "conda": "[ \"$*\" = 'info --base' ] && echo '{base}/conda'",
    "hostname": "case $1 in --ip-address) echo 10.0.0.7 ;; -f) echo here.example.org ;; *) echo here ;; esac",
    "torchrun": 'echo "torchrun $* on $CUDA_VISIBLE_DEVICES as $SLURM_PROCID"',
    "accelerate": 'echo "accelerate $* on $CUDA_VISIBLE_DEVICES as $SLURM_PROCID"',
    "mpirun": '[ "$1" = -np ] || exit 9\nfor rank in $(seq "$2"); do "$3" "$rank" & done; wait',
    "ray": 'echo "$*" >ray.started; exec sleep 1000',
    "jupyter-notebook": 'echo "jupyter $*"; exec sleep 1000',
}

ENDED = 'ended() { echo "batch job $1"; until [ "$(sacct -X -n -P -o State -j "$1" | cut -d " " -f 1)" = "$2" ]; do sleep 0.2; done; }\n'
EMPTY = 'until [ -z "$(squeue -h -u "$USER")" ]; do sleep 0.2; done'

# The published scripts: the files that they need, and how they are run if not by `sbatch -W`.
PUBLISHED = {
    "accelerate": ({}, None),
    "array-lines": ({"samples.txt": "first a.txt\nsecond b.txt\nthird c.txt\n", "a.txt": "1", "b.txt": "22", "c.txt": "333"}, None),
    # slotd creates the directories of output files, and Slurm does not.
    "array-sweep": ({"logs/.keep": ""}, None),
    "chain": ({}, f"bash chain.sh; {EMPTY}"),
    "checkpoint-requeue": (
        {"solver": "#!/bin/bash\n[ -e state ] && { echo finished >>state; exit 0; }\ntrap 'echo saved >>state; exit 0' TERM\n"
                   "echo solving >solving\nsleep 1000 & wait\n"},
        ENDED + "id=$(sbatch --parsable checkpoint-requeue.sh); until [ -s solving ]; do sleep 0.2; done\n"
        'scancel --batch --signal=USR1 "$id"; until grep -qs finished state; do sleep 0.2; done; ended "$id" COMPLETED'),
    "checkpoint-step": (
        {"worker": "#!/bin/bash\ntrap 'echo saved $SLURM_PROCID >>saved; exit 0' TERM\necho up $SLURM_PROCID >>up\n"
                   "while :; do sleep 0.1; done\n"},
        ENDED + "id=$(sbatch --parsable checkpoint-step.sh); until [ \"$(sort -u up 2>&1 | wc -l)\" = 2 ]; do sleep 0.2; done\n"
        'scancel --signal=TERM "$id"; ended "$id" COMPLETED'),
    "gpu-each": (
        {"train": '#!/bin/sh\necho "run $2 on $CUDA_VISIBLE_DEVICES"\n: >begun.$2\n'
                  "for i in 0 1 2 3; do until [ -e begun.$i ]; do sleep 0.05; done; done\n"}, None),
    "heredoc": ({"data/one.txt": "b\na\n", "data/two.txt": "d\nc\ne\n"}, f"bash heredoc.sh; {EMPTY}"),
    "jupyter": ({}, ENDED + "id=$(sbatch --parsable jupyter.sh); until grep -qs -e --ip= jupyter-$id.log; do sleep 0.2; done\n"
                            'scancel --name=jupyter; ended "$id" CANCELLED'),
    "modules-conda": ({}, "sbatch -W modules-conda.sh a 'b c'"),
    "mpirun": ({"a.out": '#!/bin/sh\necho "rank $1" >>ranks\n'}, None),
    "openmp": ({"solve": '#!/bin/sh\necho "$OMP_NUM_THREADS $OMP_PLACES $SLURM_CPUS_PER_TASK" >>solved\n'}, None),
    "packed": ({"one": '#!/bin/sh\necho "$SLURM_NTASKS" >>done.$1\n'}, None),
    "poll": ({}, "bash poll.sh"),
    "ray": ({}, None),
    "rescue": ({}, f"bash rescue.sh; {EMPTY}"),
    "resubmit": ({}, f"sbatch -W resubmit.sh; {EMPTY}"),
    "scratch": ({"input.dat": "words\n"}, None),
    "show-job": ({}, None),
    "throttle": ({}, f"bash throttle.sh; {EMPTY}"),
    "torchrun": ({}, None),
}

# The lines that are compared, where the rest is the scheduler's own.
KEPT = {
    "checkpoint-requeue": r"start|caught|saved|finished|solving",
    "checkpoint-step": r"srun ended|up|saved",
    "packed": r"finished|\d+$",
    "ray": r"python|start|Submitted",
    "show-job": r"limit|Submitted",
}

# Parts of the output that may differ: a pattern, and its replacement.
SAME = {
    "gpu-each": (r" on [0-3]$", " on GPU"),
    "jupyter": (r"\b[89]\d{3}\b", "PORT"),
    # The job asks the cluster's own sacct, which may not have its name yet.
    "rescue": (r"^allocation| +fails", "fails"),
    "scratch": (r" /\S*/scratch", " scratch"),
    "throttle": (r"^[12]$", "1 or 2"),
}

USER = "slotd-lab"


class Sides:
    """An ordinary user with a daemon here, and the commands that reach the lab."""

    def __init__(self, lab, repository):
        self.lab = lab
        self.repository = repository
        self.base = lab.base / "scripts"
        self.home = self.base / "home"
        self.base.mkdir()
        for folder in (".ssh", ".config/slotd"):
            (self.home / folder).mkdir(parents=True)
        for folder in ("here", "there", "tmp", "root", "stubs", "shims", "conda/etc/profile.d"):
            (self.base / folder).mkdir(parents=True)
        for folder in ("examples", "tests/published"):
            shutil.copytree(repository / folder, self.base / folder)
        for name, text in PROGRAMS.items():
            self.program(f"stubs/{name}", text.replace("{base}", str(self.base)))
        (self.base / "conda/etc/profile.d/conda.sh").write_text("conda() { export CONDA_DEFAULT_ENV=$2; }\n")
        (self.base / "before").write_text(f'case $PATH in {self.base}/stubs:*) ;; *) PATH={self.base}/stubs:$PATH ;; esac\n'
                                          'module() { echo "module $*"; }\n')
        for command in ("scontrol", "scancel", "srun", "salloc"):
            self.program(f"shims/{command}", f'exec {lab.bin}/{command} -M lab "$@"')
        for command, mark in (("sbatch", "s/;lab$//; s/ on cluster lab$//"), ("squeue", "/^CLUSTER: lab$/d"), ("sinfo", "/^CLUSTER: lab$/d")):
            self.program(f"shims/{command}", f'o=$({lab.bin}/{command} -M lab "$@"); c=$?\n[ -z "$o" ] || printf "%s\\n" "$o" | sed "{mark}"\nexit $c')
        # sacct of 22.05 names a job "allocation" until its beginning has been recorded.
        self.program("shims/sacct", f'for i in $(seq 50); do o=$({lab.bin}/sacct -M lab "$@"); c=$?\n'
                     'case $o in *allocation*) sleep 0.2 ;; *) break ;; esac; done\n[ -z "$o" ] || printf "%s\\n" "$o"\nexit $c')
        shutil.copy(lab.base / "slurm/keys/user", self.home / ".ssh/key")
        shutil.copy(lab.home / ".ssh/known_hosts", self.home / ".ssh/known_hosts")
        config = lab.hosts["lab"].replace(f"{lab.base}/slurm/keys/user", f"{self.home}/.ssh/key").replace(str(lab.home), str(self.home))
        (self.home / ".ssh/config").write_text(config)
        (self.home / ".config/slotd/clusters.toml").write_text(
            '[[cluster]]\nname = "lab"\nssh = "lab"\nworkdir = "same"\npoll = 1\nexport = ["BASH_ENV", "MINE", "SBATCH_JOB_NAME"]\n')
        (self.home / ".config/slotd/slotd.env").write_text(
            "SLOTD_CPUS=8\nSLOTD_MEMORY_MB=8000\nSLOTD_GPU_COUNT=4\nSLOTD_FEATURES=cpu\nSLOTD_KILL_WAIT=5\n")
        # Login shells reset PATH.
        (self.home / ".profile").write_text(f"PATH={self.base}/bin:{lab.bin}:$PATH\n")
        self.program("bin/ssh", 'exec /usr/bin/ssh -F "$HOME/.ssh/config" "$@"')
        subprocess.run(["chown", "-R", f"{USER}:", str(self.base)], check=True)
        os.chmod(self.home / ".ssh/key", 0o600)
        lab.bin.chmod(0o755)

    def program(self, name, text):
        path = self.base / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)

    def run(self, words, side, cwd, limit=400, **variables):
        first = f"{self.base}/shims:" if side == "there" else ""
        environment = {
            "PATH": f"{first}{self.base}/bin:{self.lab.bin}:/usr/bin:/bin", "HOME": str(self.home), "SLOTD_ROOT": str(self.base / "root"),
            "LANG": "C.UTF-8", "USER": USER, "LOGNAME": USER, "TMPDIR": str(self.base / "tmp"),
        }
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", cwd=cwd, timeout=limit,
                              env=environment | variables, user=USER, group=USER, extra_groups=[])

    def start(self):
        self.run(["slotd", "daemon", "start"], "here", self.base).check_returncode()
        # Numbers that a script prints are not taken for job IDs, which are larger then.
        many = "for i in $(seq 120); do sbatch -Q -H --wrap true; done; scancel -u $USER"
        self.run(["sh", "-c", many], "here", self.base).check_returncode()
        if int(self.lab.query("sbatch -H --parsable --wrap true")) < 120:
            self.lab.query("for i in $(seq 120); do sbatch -Q -H --wrap true; done")
        self.lab.query(f"scancel -u {USER}; scancel -u root")

    def stop(self):
        self.run(["slotd", "daemon", "stop"], "here", self.base)

    def jobs(self, side):
        """The IDs of all jobs that sacct knows by now."""
        text = self.run(["sacct", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID"], side, self.base).stdout
        return {re.match(r"\d*", line)[0] for line in text.splitlines()} - {""}

    def plain(self, name, text, ids):
        """Removes the parts that differ between two runs on one scheduler, and the schedulers' own messages."""
        lines = []
        for line in text.replace(socket.gethostname().split(".")[0], "HOST").splitlines():
            if line.startswith(("srun: ", "slurmstepd", "slotd: ")) or not re.match(KEPT.get(name, ""), line):
                continue
            line = line.replace(f"{self.base}/here/", "").replace(f"{self.base}/there/", "")
            line = re.sub(r"\b\d+\b|(?<=_)\d+(?=_)", lambda found: "ID" if found[0] in ids else found[0], line)
            lines.append(re.sub(*SAME[name], line) if name in SAME else line)
        return sorted(lines)

    def published(self, name, side):
        """Runs a published script. Returns what it did."""
        cwd = self.base / side / name
        files, line = PUBLISHED[name]
        before = self.jobs(side)
        for file, text in ({f"{name}.sh": (self.base / f"tests/published/{name}.sh").read_text()} | files).items():
            path = cwd / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        subprocess.run(["chown", "-R", f"{USER}:", str(cwd)], check=True)
        given = set(cwd.rglob("*"))
        done = self.run(["bash", "-c", line or f"sbatch -W {name}.sh"], side, cwd, BASH_ENV=str(self.base / "before"))
        texts = {str(path.relative_to(cwd)): path.read_text(errors="replace") for path in set(cwd.rglob("*")) - given if path.is_file()}
        # sacct shows the latest jobs a moment later.
        ids = self.jobs(side) - before | set(re.findall(r"job (\d+)", "".join([done.stdout, *texts.values()])))
        found = {}
        for path, text in sorted(texts.items()):
            label = re.sub(r"\d+", lambda number: "ID" if number[0] in ids else number[0], path)
            found[label] = self.plain(name, text, ids)
        return {"exit code": done.returncode, "output": self.plain(name, done.stdout, ids), "files": found}, done.stderr

    def example(self, name, side):
        """Runs an example. Returns its results."""
        before = self.jobs(side)
        done = self.run(["bash", str(self.base / f"examples/{name}.sh")], side, self.base / side)
        ids = self.jobs(side) - before
        results = [line for line in done.stdout.splitlines() if line.startswith(("ok: ", "FAILED: "))]
        return {"exit code": done.returncode, "results": self.plain(name, "\n".join(results), ids)}, done.stderr


def scripts(lab, check, repository):
    examples = {path.stem for path in (repository / "examples").glob("*.sh")} - {"lib"} | {"pipeline/run"}
    published = {path.stem for path in (repository / "tests/published").glob("*.sh")}
    check("each published script is run", published == set(PUBLISHED), str(published ^ set(PUBLISHED)))
    check("each excluded example exists", set(NOT_THERE) <= examples, str(set(NOT_THERE) - examples))
    sides = Sides(lab, repository)
    sides.start()
    try:
        for name, how in [*((name, sides.published) for name in sorted(published)),
                          *((name, sides.example) for name in sorted(examples - set(NOT_THERE)))]:
            try:
                here, _ = how(name, "here")
                there, errors = how(name, "there")
            except subprocess.TimeoutExpired as late:
                check(f"{name}.sh runs there as here", False, str(late))
                lab.query(f"scancel -u {USER}")
                continue
            check(f"{name}.sh runs there as here", here == there, f"here {here}, there {there} {errors[-600:]}")
    finally:
        sides.stop()
    for name, why in NOT_THERE.items():
        print(f"   {name}.sh is not run there: {why}")
    count = len(published) + len(examples)
    print(f"   {count} scripts: {count - len(NOT_THERE)} run on both sides, {len(NOT_THERE)} make no sense there")
