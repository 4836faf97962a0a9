#!/usr/bin/env bash
# Writes src/startup.ld, which tells the linker to put the functions that commands execute next to
# each other, and after them those that the daemon and the watchers of steps execute. A command then
# causes a quarter fewer page faults, and the daemon needs half the memory: the kernel maps the pages
# around the one that is executed, too. Run it after large changes:
# functions that are missing from the file cost a page fault each, but are not errors.
#
#   contrib/startup-order.sh [PROGRAM]
#
# PROGRAM is a release build with symbols (default: built in target/startup). It needs valgrind, perf
# and binutils.
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
export PATH=$work:$PATH
for name in slotd sbatch squeue sacct scontrol scancel sinfo srun; do ln -s "$program" "$work/$name"; done
cd "$work"
printf '#!/bin/sh\n#SBATCH -c 1\ntrue\n' >job.sh

# Starts a daemon with its own root.
begin() {
  export SLOTD_ROOT=$work/$1
  "${@:2}" slotd daemon 2>/dev/null &
  daemon=$!
  until slotd sinfo >/dev/null 2>&1; do sleep 0.1; done
}
finish() { kill "$daemon" && wait "$daemon"; }
trap 'kill "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT
traced=(valgrind --tool=callgrind --demangle=no --callgrind-out-file="$work/%q{kind}.%p")

# The commands. `slotd sbatch` does not use the shortcut.
begin commands
ended=$(sbatch --parsable -W -o /dev/null job.sh)
held=$(sbatch --parsable -H -o /dev/null job.sh)
export kind=command
while read -ra words; do "${traced[@]}" slotd "${words[@]}" >/dev/null 2>&1; done <<END
sbatch -H -o /dev/null --wrap true
sbatch -H --parsable job.sh
squeue
squeue -j $held
squeue -h -o %i_%T
sinfo
scontrol show job $held
sacct -j $ended
sacct -X -n -P -o State -j $ended
srun true
salloc true
scancel $held
END
finish

# The daemon, its launcher and the watchers. valgrind cannot follow the launcher, so these are sampled.
begin sampled
perf record --quiet -a -F 20000 -e cpu-clock:u -e page-faults/period=1/u -o samples -- bash -c '
  for _ in {1..6000}; do sbatch -o /dev/null job.sh; done
  sbatch -W -o /dev/null -a 1-1000 job.sh
  for _ in {1..100}; do srun true; sbatch -W -o /dev/null job.sh; sbatch -H job.sh; squeue -j 1; squeue; sinfo; sacct -j 1; scontrol show job 1; done
  for _ in {1..20}; do slotd squeue; slotd sinfo; slotd sacct -j 1; slotd scontrol show job 1; scancel -t PD -n job.sh; done
' >/dev/null
finish
perf report -i samples --stdio --no-demangle --dsos "${program##*/}" --sort symbol -F symbol 2>/dev/null | awk '/^ *\[\.\]/ { print "fn=(0) " $2 }' >sampled.1

# The daemon, with jobs that it does not start. What it executes at its start and end comes last: it
# does not keep the former in memory.
kind=daemon
begin daemon "${traced[@]}"
callgrind_control --dump "$daemon" >/dev/null
for dump in "$work"/daemon.*.1; do mv "$dump" "$work/start.$daemon"; done
sbatch -H -o /dev/null -a 1-20 job.sh >/dev/null
for job in {2..40}; do
  sbatch -H -o /dev/null job.sh
  squeue -j "$job"
  sinfo
  sacct -j "$job"
  scontrol show job "$job"
done >/dev/null
for name in squeue sinfo sacct; do slotd "$name" >/dev/null; done
scancel -t PD -n job.sh
callgrind_control --dump "$daemon" >/dev/null
for dump in "$work"/daemon.*.2; do mv "$dump" "$work/serving.$daemon"; done
finish
cd - >/dev/null

# The names of the functions of one trace, without the suffixes that the compiler and valgrind add.
names() { sed -nE "s/^c?fn=\([0-9]+\) ([^ ']+).*/\1/p" "$1" | sed -E 's/\.llvm\.[0-9]+$//' | sort -u; }
# First the functions that most commands execute.
for kind in command serving sampled start daemon; do
  for trace in "$work/$kind".*; do names "$trace"; done | sort | uniq -c | sort -k1,1nr -k2
done | awk '!seen[$2]++ { print $2 }' >"$work/order"
# The identifiers of crates and the back references to them change with the compiler.
stable() { sed -nE 's/\.llvm\..*//; s/Cs[0-9A-Za-z]+_/Cs*_/g; s/B[0-9a-zA-Z]*_/B*_/g; /^_R/p'; }
# The names of Rust's functions, each only as long as no other function of the program begins with it.
functions() {
  stable <"$work/order" | awk '!seen[$0]++' >"$work/listed"
  nm "$program" | awk '{ print $3 }' | stable | cat - "$work/listed" | LC_ALL=C sort -u >"$work/all"
  LC_ALL=C awk '
    # The length of the common beginning.
    function common(a, b,    n) {
      while (n < length(a) && substr(a, n + 1, 1) == substr(b, n + 1, 1)) n++
      return n
    }
    NR == FNR { rank[$0] = ++listed; next }
    { name[++all] = $0 }
    !($0 in rank) { other = $0 }
    { least[all] = common($0, other) }
    END {
      for (other = ""; all; all--) {
        if (!(name[all] in rank)) { other = name[all]; continue }
        length_after = common(name[all], other)
        length_needed = 1 + (length_after > least[all] ? length_after : least[all])
        print rank[name[all]], substr(name[all], 1, length_needed)
      }
    }' "$work/listed" "$work/all" | sort -n | awk '!seen[$2]++ { print $2 }'
}
libc=$(cc -print-file-name=libc.a)
# The functions of SQLite and other libraries in C, which have a section each.
c_functions() {
  nm "$libc" 2>/dev/null | awk 'NF == 3 { print $3 }' >"$work/of_libc"
  awk 'NR == FNR { of_libc[$1]; next } !/^_R/ && /^[A-Za-z]/ && !($1 in of_libc)' "$work/of_libc" "$work/order"
}
members() {
  nm -A "$libc" 2>/dev/null |
    awk -F '[: ]+' '$4 ~ /^[TWi]$/ { print $5, $2 }' | sort -u -k1,1 >"$work/members"
  awk 'NR == FNR { member[$1] = $2; next } $1 in member && !seen[member[$1]]++ { print member[$1] }' "$work/members" "$work/order"
}
{
  printf '/* Written by contrib/startup-order.sh. */\nSECTIONS {\n  .text.startup_order : {\n'
  # The compiler puts the functions that it considers cold into sections of that name.
  functions | sed 's/.*/    *(.text.&* .text.unlikely.&*)/'
  c_functions | sed 's/.*/    *(.text.&)/'
  members | sed 's/.*/    *libc.a:&(.text .text.*)/'
  printf '  }\n} INSERT BEFORE .text;\n'
} >src/startup.ld
wc -l src/startup.ld
