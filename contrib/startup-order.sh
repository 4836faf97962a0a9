#!/usr/bin/env bash
# Writes src/startup.ld, which tells the linker to put the functions that commands execute next to
# each other, so that a command causes a quarter fewer page faults. Run it after large changes to the
# commands: functions that are missing from the file cost a page fault each, but are not errors.
#
#   contrib/startup-order.sh [PROGRAM]
#
# PROGRAM is a release build with symbols (default: built in target/startup). It needs valgrind and
# binutils.
set -euo pipefail
cd "$(dirname "$0")/.."
if (($#)); then
  program=$(realpath "$1")
else
  export CARGO_TARGET_DIR=$PWD/target/startup CARGO_PROFILE_RELEASE_STRIP=none
  cargo build --release --locked
  program=$CARGO_TARGET_DIR/release/slotd
fi

work=$(mktemp -d)
export SLOTD_ROOT=$work/root PATH=$work:$PATH
for name in slotd sbatch srun salloc squeue sacct scontrol scancel sinfo; do ln -s "$program" "$work/$name"; done
slotd daemon &
daemon=$!
trap 'kill "$daemon"; wait "$daemon" || true; rm -rf "$work"' EXIT
until sinfo >/dev/null 2>&1; do sleep 0.1; done

traced() {
  valgrind --tool=callgrind --demangle=no --callgrind-out-file="$work/trace.$((++traces))" "$@" >/dev/null 2>&1
}
traces=0
cd "$work"
printf '#!/bin/sh\n#SBATCH -c 1\ntrue\n' >job.sh
ended=$(sbatch --parsable -W -o /dev/null job.sh)
held=$(sbatch --parsable -H -o /dev/null job.sh)
traced sbatch -H -o /dev/null --wrap true
traced sbatch -H --parsable job.sh
traced squeue
traced squeue -j "$held"
traced squeue -h -o '%i %T'
traced sinfo
traced scontrol show job "$held"
traced sacct -j "$ended"
traced sacct -X -n -P -o State -j "$ended"
traced srun true
traced salloc true
traced scancel "$held"
cd - >/dev/null

# The names of the functions of one trace, without the suffixes that the compiler and valgrind add.
names() { sed -nE "s/^c?fn=\([0-9]+\) ([^ ']+).*/\1/p" "$1" | sed -E 's/\.llvm\.[0-9]+$//' | sort -u; }
# First the functions that most commands execute.
for trace in "$work"/trace.*; do names "$trace"; done | sort | uniq -c | sort -k1,1nr -k2 |
  awk '{ print $2 }' >"$work/order"
# The identifiers of crates and the back references to them change with the compiler.
functions() { sed -nE 's/\.llvm\..*//; s/Cs[0-9A-Za-z]+_/Cs*_/g; s/B[0-9a-zA-Z]*_/B*_/g; /^_R/p' "$work/order" | awk '!seen[$0]++'; }
members() {
  nm -A "$(cc -print-file-name=libc.a)" 2>/dev/null |
    awk -F '[: ]+' '$4 ~ /^[TWi]$/ { print $5, $2 }' | sort -u -k1,1 >"$work/members"
  awk 'NR == FNR { member[$1] = $2; next } $1 in member && !seen[member[$1]]++ { print member[$1] }' "$work/members" "$work/order"
}
{
  printf '/* Written by contrib/startup-order.sh. */\nSECTIONS {\n  .text.startup_order : {\n'
  functions | sed 's/.*/    *(.text.&*)/'
  members | sed 's/.*/    *libc.a:&(.text .text.*)/'
  printf '  }\n} INSERT BEFORE .text;\n'
} >src/startup.ld
wc -l src/startup.ld
