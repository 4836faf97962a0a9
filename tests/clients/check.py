"""What all parts share: one line for each thing that was looked at."""

import time


def check(what, found, wanted):
    if found == wanted:
        print(f"ok {what}", flush=True)
    else:
        print(f"not ok {what}: {found!r}, not {wanted!r}", flush=True)


def wait_for(what, condition, seconds=60):
    """Waits until the condition holds; a condition that never does fails here."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)
