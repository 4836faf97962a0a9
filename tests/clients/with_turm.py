"""turm: its screen with running, pending and array jobs, the output of a job, and cancelling a job by key presses."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

import pyte
from check import PATIENCE, becomes, check, run, wait_for

LINES, COLUMNS = 40, 160


class Terminal:
    """turm in a terminal with a readable screen."""

    def __init__(self):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        self.keys, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        words = ["turm", "--me", "--slurm-refresh", "1", "--file-refresh", "1"]
        self.running = subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env={**os.environ, "TERM": "xterm-256color"})
        os.close(side)

    def shows(self, *texts):
        """Processes new output, and returns whether all texts are on the screen."""
        while select.select([self.keys], [], [], 0)[0]:
            self.stream.feed(os.read(self.keys, 65536))
        page = "\n".join(self.screen.display)
        return page if all(text in page for text in texts) else None

    def wait(self, *texts):
        try:
            return wait_for(f"{texts} on the screen", lambda: self.shows(*texts))
        except TimeoutError:
            print("\n".join(self.screen.display))
            raise

    def press(self, keys):
        os.write(self.keys, keys.encode())


def job(number, field):
    return run("squeue", "-h", "-j", number, "-o", field).strip()


first = run("sbatch", "--parsable", "-J", "talks", "-t", "30", "-o", "talks.%j", "--wrap", "echo said by the job; sleep 1000").strip()
array = run("sbatch", "--parsable", "-J", "many", "-H", "-a", "3-4", "-o", "/dev/null", "--wrap", "true").strip()
becomes("a start", lambda: job(first, "%T"), "RUNNING")
terminal = Terminal()
page = terminal.wait("talks", f"{array}_3", f"{array}_4", "many")
row = next(line for line in page.splitlines() if "talks" in line)
check("a running job", row.strip("│ ").split()[:3], ["R", first, "cpu"])
waiting = [line for line in page.splitlines() if f"{array}_" in line and "many" in line]
check("pending array tasks", ["PD" in line for line in waiting], [True, True])

# The running job comes last.
terminal.press("G")
page = terminal.wait("said by the job")
check("its output file", f"talks.{first}" in page, True)
terminal.press("c")
terminal.wait("ancel")
terminal.press("\r")
becomes("a cancellation", lambda: run("sacct", "-X", "-n", "-P", "-o", "State", "-j", first).split(" ")[0], "CANCELLED")
terminal.press("q")
check("its end", terminal.running.wait(PATIENCE), 0)
