"""Shared by all parts: prints one line for each check."""

import pathlib
import subprocess
import time

# Longer than any operation takes, and shorter than the limit in run.
PATIENCE = 300


def check(what, found, wanted):
    if found == wanted:
        print(f"ok {what}", flush=True)
    else:
        print(f"not ok {what}: {found!r}, expected {wanted!r}", flush=True)


def becomes(what, ask, wanted, seconds=PATIENCE):
    """Like check, but waits until the value is as expected."""
    end = time.monotonic() + seconds
    while (found := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    check(what, found, wanted)


def wait_for(what, condition, seconds=PATIENCE):
    """Waits until the condition returns a true value, and returns it. Raises TimeoutError otherwise."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)
    return result


def run(*words, **options):
    """Runs a command that must succeed, and returns its output."""
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def lines(path):
    return pathlib.Path(path).read_text().splitlines()


def all_jobs(fields, *words):
    """Returns a line of sacct for each job of the last hour, or for those that the options in words select."""
    return run("sacct", "-X", "-n", "-P", "-S", "now-1hour", "-o", fields, *words).splitlines()


def states(*words):
    """Returns the sorted states of the jobs that all_jobs selects."""
    return sorted(all_jobs("State", *words))
