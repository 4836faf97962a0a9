#!/usr/bin/env python3
"""Reads the names of Rust functions, and prints patterns for them, for startup-order.sh.

    patterns.py PROGRAM <NAMES

A pattern also matches in programs that another compiler has built: it has no identifiers of crates and
no back references. It is only as long as it needs to be to match no other function of PROGRAM.
"""

import bisect
import re
import subprocess
import sys

# What is added to a pattern that matches other functions.
MORE = 8


def stable(name):
    """Returns a name without what changes with the compiler."""
    name = re.sub(r"\.llvm\..*", "", name)
    return re.sub(r"B[0-9a-zA-Z]*_", "B*_", re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name))


def common(one, other):
    """Returns the length of the common beginning of two names."""
    pairs = zip(one, other)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def matches(pattern, others):
    """Returns whether a pattern, which `*` follows, matches one of the sorted names."""
    beginning = pattern.split("*")[0]
    expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
    at = bisect.bisect_left(others, beginning)
    while at < len(others) and others[at].startswith(beginning):
        if expression.match(others[at]):
            return True
        at += 1
    return False


def main():
    names = [name for name in sys.stdin.read().split() if name.startswith("_R")]
    listed = dict.fromkeys(map(stable, names))
    symbols = [line.split()[-1] for line in subprocess.check_output(["nm", sys.argv[1]], text=True).splitlines()]
    rust = {name for name in symbols if name.startswith("_R")}
    others = sorted({stable(name) for name in rust} - set(listed))
    # The pattern has to tell the names apart as the linker sees them.
    full = sorted(name for name in rust if stable(name) not in listed)
    known = set()
    for name in listed:
        at = bisect.bisect_left(others, name)
        length = 1 + max((common(name, other) for other in others[max(at - 1, 0) : at + 1]), default=0)
        while length < len(name) and matches(name[:length], full):
            length += MORE
        pattern = name[:length]
        if pattern not in known:
            known.add(pattern)
            print(pattern)


main()
