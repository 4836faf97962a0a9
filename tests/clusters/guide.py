"""Follows the book's guide "Moving to a cluster" literally: writes its files, runs its commands, and compares their outputs."""

import re
import shlex
import socket
import subprocess

# Commands that are not run, with the reason.
NOT_RUN = {
    "sbatch -M hpc train.sh": "its output requires a cluster that does not answer; the part `timeouts` covers this",
    "slotd cluster resolve 5f1d…": "the part `stages` resolves a submission",
}

# A job that writes two files. The output file is the third.
TRAIN = '#!/bin/sh\necho "epoch 1"\nmkdir -p out\necho 1 >out/model\necho 2 >out/loss\n'


def blocks(text):
    """Yields the kind and the lines of each code block."""
    for kind, body in re.findall(r"^```(\S+)\n(.*?)^```$", text, flags=re.M | re.S):
        yield kind, body.splitlines()


def commands(lines):
    """Yields each command of a console block with the output below it."""
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    yield from found


def pattern(line):
    """Returns the pattern of a line of output: numbers, sizes and the names of the site differ."""
    line = re.escape(line).replace(r"\ ", " ")
    line = line.replace("login1", re.escape(socket.gethostname())).replace("ClusterName: hpc", "ClusterName: lab")
    line = re.sub(r"slurm \d.*", r"slurm\\S* [\\d.]+", line)
    return re.sub(r"\d+M?", r"[\\d.]+[KMG]?", line) + "$"


class Reader:
    """A user who follows the guide on a site where only the names differ."""

    def __init__(self, lab):
        self.lab = lab
        self.base = lab.base / "guide"
        self.home = self.base / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        (self.home / ".config/slotd").mkdir(parents=True)
        self.project = self.home / "project"
        self.project.mkdir()
        subprocess.run(["git", "init", "-q", str(self.project)], check=True, env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
        (self.project / "train.sh").write_text(TRAIN)
        lab.program("guide/bin/ssh", 'exec /usr/bin/ssh -F "$HOME/.ssh/config" "$@"')
        self.environment = lab.environment | {"HOME": str(self.home), "PATH": f"{self.base}/bin:{lab.environment['PATH']}"}
        self.cwd = self.home
        # The number of the guide's job, and the real one.
        self.job = None

    def ssh(self, lines):
        config = "\n".join(lines).replace("login.hpc.example.org", "127.0.0.1").replace("User me", "User slotd-lab")
        config = re.sub(r"\n *ProxyJump .*", "", config)
        more = self.lab.hosts["lab"].splitlines()[2:]
        (self.home / ".ssh/config").write_text("\n".join([config, *(line for line in more if "User " not in line)]) + "\n")

    def run(self, line, limit=300):
        if line.startswith("cd "):
            self.cwd = self.home / line[3:].removeprefix("~/")
            return subprocess.CompletedProcess(line, 0, "", "")
        # The guide's job has another number here.
        text = line if self.job is None else re.sub(r"\b17\b", self.job, line)
        return subprocess.run(["sh", "-c", text], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.cwd, timeout=limit,
                              env=self.environment)

    def submit(self, command):
        done = self.run(f"sbatch -M hpc --parsable --wrap {shlex.quote(command)}")
        return done.stdout.split(";")[0]


def guide(lab, check, repository):
    reader = Reader(lab)
    texts = 0
    for kind, lines in blocks((repository / "contrib/book/src/guides/moving-to-a-cluster.md").read_text()):
        if kind == "text":
            texts += 1
            if texts == 1:
                reader.ssh(lines)
            else:
                (reader.home / ".config/slotd/clusters.toml").write_text("\n".join(lines) + "\n")
            continue
        for line, output in commands(lines):
            if line in NOT_RUN:
                print(f"   not run: {line}: {NOT_RUN[line]}")
                continue
            if line.endswith("clean hpc --dry-run"):
                # The guide's list has two submissions that can be deleted, and a job that runs.
                second = reader.submit("true")
                reader.run(f"slotd wait {second}@hpc && slotd fetch {second}@hpc")
                running = reader.submit("sleep 300")
            done = reader.run(line)
            printed = done.stdout.splitlines()
            right = done.returncode == 0
            if output:
                right = right and len(printed) == len(output) and all(re.match(pattern(a), b) for a, b in zip(output, printed))
            check(f"the guide: {line}", right, f"exit {done.returncode}: {done.stdout!r} {done.stderr!r}")
            if submitted := re.match(r"Submitted batch job (\d+)", done.stdout):
                reader.job = submitted[1]
    reader.run(f"scancel -M hpc {running}")
    reader.run("ssh -O exit -o ControlPath=$(echo $SLOTD_ROOT/run/ssh/*) hpc")
