"""What all parts share: one line for each thing that was looked at."""

import pathlib
import subprocess
import time

# Longer than anything takes, and shorter than the limit of run.
PATIENCE = 300


def check(what, found, wanted):
    if found == wanted:
        print(f"ok {what}", flush=True)
    else:
        print(f"not ok {what}: {found!r}, not {wanted!r}", flush=True)


def becomes(what, ask, wanted, seconds=PATIENCE):
    """As check, of something that takes its time."""
    end = time.monotonic() + seconds
    while (found := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    check(what, found, wanted)


def wait_for(what, condition, seconds=PATIENCE):
    """Waits until the condition holds, and returns what it said; a condition that never does fails here."""
    end = time.monotonic() + seconds
    while not (said := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)
    return said


def run(*words, **options):
    """What a command that must succeed printed."""
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def lines(path):
    return pathlib.Path(path).read_text().splitlines()


def all_jobs(fields, *words):
    """A line of sacct for each job of this daemon, or those that the words choose. By itself sacct begins at midnight."""
    return run("sacct", "-X", "-n", "-P", "-S", "now-1hour", "-o", fields, *words).splitlines()


def states(*words):
    """The states of jobs, sorted: all of this daemon's, or those that the words choose."""
    return sorted(all_jobs("State", *words))
