"""What all parts share: one line for each thing that was looked at."""

import pathlib
import subprocess
import time


def check(what, found, wanted):
    if found == wanted:
        print(f"ok {what}", flush=True)
    else:
        print(f"not ok {what}: {found!r}, not {wanted!r}", flush=True)


def becomes(what, ask, wanted, seconds=100):
    """As check, of something that takes its time."""
    end = time.monotonic() + seconds
    while (found := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    check(what, found, wanted)


def wait_for(what, condition, seconds=100):
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


def states(*words):
    """The states of jobs, sorted: all of this daemon's, or those that the words choose."""
    return sorted(run("sacct", "-X", "-n", "-P", "-o", "State", *words).splitlines())
