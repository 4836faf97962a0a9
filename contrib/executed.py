#!/usr/bin/env python3
"""Lists the functions of a program that processes execute, for startup-order.sh.

    executed.py LIST PROGRAM COMMAND [ARGUMENT]...   runs the command, a link to the program
    executed.py LIST PROGRAM PID                     follows a process that executes the program

It sets a breakpoint on each function and removes it where it is hit, in the process, its threads and
its children. It ends with the last of them, and then writes LIST. A child that executes another program
is not followed. When a daemon has started and unmaps its code, it begins anew: LIST.before then has the
functions that were executed until then.

The program must be linked to fixed addresses and have symbols. For x86-64.
"""

import ctypes
import os
import signal
import struct
import subprocess
import sys

CONT, GETREGS, SETREGS, DETACH, SEIZE = 7, 12, 13, 17, 0x4206
# Follow fork(2), vfork(2) and clone(2), and report execve(2).
OPTIONS = 0x2 | 0x4 | 0x8 | 0x10
EVENT_EXEC = 4
WALL = 0x40000000
RIP, RSP = 16, 19
INT3 = b"\xcc"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, data=None):
    """Returns whether the request was carried out: the process may have been killed."""
    return libc.ptrace(request, pid, None, data) == 0


def seize(task):
    if not ptrace(SEIZE, task, OPTIONS):
        sys.exit(f"cannot follow process {task}: {os.strerror(ctypes.get_errno())}")


def memory(pid):
    return open(f"/proc/{pid}/mem", "r+b", buffering=0)


def functions(program):
    """Returns the names of the functions at each address."""
    found = {}
    for line in subprocess.check_output(["nm", "--defined-only", program], text=True).splitlines():
        address, kind, name = line.split(maxsplit=2)
        if kind in "tTwWi":
            found.setdefault(int(address, 16), []).append(name)
    return found


def code(pid):
    """Returns the code of a process, by the address at which each part of it begins."""
    parts = {}
    with open(f"/proc/{pid}/maps") as maps, memory(pid) as mem:
        for line in maps:
            addresses, mode, *_ = line.split()
            first, end = (int(address, 16) for address in addresses.split("-"))
            if mode == "r-xp" and "/" in line:
                mem.seek(first)
                parts[first] = mem.read(end - first)
    return parts


class Tracer:
    def __init__(self, listed, named):
        self.listed, self.named = listed, named
        self.original, self.hit = {}, set()
        self.unmaps = {at for at, names in named.items() if any("unmap_code" in name for name in names)}

    def set_breakpoints(self, pid):
        """Sets those that are not set."""
        with memory(pid) as mem:
            for first, part in code(pid).items():
                part = bytearray(part)
                for at in self.named:
                    if first <= at < first + len(part):
                        self.original.setdefault(at, part[at - first])
                        part[at - first : at - first + 1] = INT3
                mem.seek(first)
                mem.write(part)

    def on_breakpoint(self, pid):
        """Returns false if the process was not stopped by a breakpoint."""
        registers = (ctypes.c_ulonglong * 27)()
        ptrace(GETREGS, pid, registers)
        at = registers[RIP] - 1
        if at not in self.original:
            return False
        self.hit.add(at)
        with memory(pid) as mem:
            if at in self.unmaps:
                self.write(f"{self.listed}.before")
                self.hit.clear()
                self.set_breakpoints(pid)
                # It would remove the breakpoints, so it returns at once.
                mem.seek(registers[RSP])
                registers[RIP] = struct.unpack("Q", mem.read(8))[0]
                registers[RSP] += 8
            else:
                mem.seek(at)
                mem.write(bytes([self.original[at]]))
                registers[RIP] = at
        ptrace(SETREGS, pid, registers)
        return True

    def follow(self):
        """Continues all processes until the last has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, WALL)
            except ChildProcessError:
                return
            if not os.WIFSTOPPED(status):
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == EVENT_EXEC:
                ptrace(DETACH, pid)
            elif event or number == signal.SIGTRAP and self.on_breakpoint(pid):
                ptrace(CONT, pid)
            else:
                ptrace(CONT, pid, number)

    def write(self, path):
        with open(path, "w") as file:
            file.writelines(f"{name}\n" for at in sorted(self.hit) for name in self.named[at])


def started(command):
    """Starts a command. Returns its PID once it has executed the program."""
    begin, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(begin, 1)
        os.execvp(command[0], command)
    seize(pid)
    os.close(begin)
    os.close(go)
    os.waitpid(pid, WALL)
    return pid


def main():
    listed, program, *command = sys.argv[1:]
    tracer = Tracer(listed, functions(program))
    if command[0].isdigit():
        tasks = [int(task) for task in os.listdir(f"/proc/{command[0]}/task")]
        for task in tasks:
            seize(task)
        tracer.set_breakpoints(tasks[0])
    else:
        pid = started(command)
        tracer.set_breakpoints(pid)
        ptrace(CONT, pid)
    tracer.follow()
    tracer.write(listed)


main()
