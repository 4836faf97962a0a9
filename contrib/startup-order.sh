#!/usr/bin/env bash
# Writes src/startup.ld, which tells the linker to put the functions that commands execute next to
# each other, and after them those that the daemon executes while it serves, those of the watchers of
# steps, and those that only the start of the daemon needs. A command then causes a quarter fewer page
# faults, and the daemon needs half the memory: the kernel maps the pages around the one that is
# executed, too. Run it after large changes: functions that are missing from the file cost a page fault
# each, but are not errors.
#
#   contrib/startup-order.sh [PROGRAM]
#
# PROGRAM is a release build with symbols (default: built in target/startup). It needs python3 and
# binutils.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/contrib
if (($#)); then
  program=$(realpath "$1")
else
  export CARGO_TARGET_DIR=$PWD/target/startup CARGO_PROFILE_RELEASE_STRIP=none
  cargo build --release --locked
  program=$CARGO_TARGET_DIR/release/slotd
fi
if ! nm "$program" 2>/dev/null | grep unmap_code >/dev/null; then
  printf '%s is not a slotd program with symbols: build it with CARGO_PROFILE_RELEASE_STRIP=none\n' "$program" >&2
  exit 1
fi

work=$(mktemp -d)
export PATH=$work:$PATH
for name in slotd sbatch squeue sacct scontrol scancel sinfo srun salloc; do ln -s "$program" "$work/$name"; done
cd "$work"
printf '#!/bin/sh\n#SBATCH -c 1\ntrue\n' >job.sh

# Lists the functions that a command or process executes, in a file with this name.
executed() { python3 "$here/executed.py" "$work/$1" "$program" "${@:2}" >/dev/null 2>&1; }
trap 'slotd daemon stop >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

# The daemon, its launcher and the watchers.
export SLOTD_ROOT=$work/root
executed serving slotd daemon &
tracer=$!
# A tracer that is not permitted to follow a process has ended.
until slotd sinfo >/dev/null 2>&1; do kill -0 "$tracer" && sleep 0.1; done
[[ $(slotd daemon status) =~ process\ ([0-9]+) ]]
launcher=$(pgrep -P "${BASH_REMATCH[1]}" -x slotd-launcher)
executed watching "$launcher" &
tracer=$!
until grep -q '^TracerPid:.*[1-9]' "/proc/$launcher/status"; do kill -0 "$tracer" && sleep 0.1; done
{
  for _ in {1..50}; do sbatch -o /dev/null job.sh; done
  sbatch -W -o /dev/null -a 1-100 job.sh
  for job in {1..10}; do
    sbatch -W -o /dev/null job.sh
    sbatch -H -o /dev/null job.sh
    sbatch -H -o /dev/null -a 1-20 job.sh
    srun true
    salloc true
    for name in "" slotd; do
      $name squeue
      $name squeue -j "$job"
      $name sinfo
      $name sacct -j "$job"
      $name scontrol show job "$job"
    done
    sbatch -d "afterok:$job" -t 5 job.sh
    slotd scancel -t PD -n job.sh
  done
  # Long answers are written by another thread.
  for _ in {1..300}; do sbatch -H -o /dev/null --wrap true; done
  squeue
  squeue --json
  sacct
  scontrol show job
} >/dev/null 2>&1
slotd daemon stop >/dev/null
wait

# The commands. `slotd sbatch` does not use the shortcut.
slotd daemon start >/dev/null
ended=$(sbatch --parsable -W -o /dev/null job.sh)
held=$(sbatch --parsable -H -o /dev/null job.sh)
count=0
while read -ra words; do executed command.$((++count)) slotd "${words[@]}" </dev/null; done <<END
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
slotd daemon stop >/dev/null
cd - >/dev/null

# Commands and the serving daemon each execute a part without gaps: what both execute is in the middle,
# and what most commands execute is next to it.
sort "$work"/command.* | uniq -c | sort -k1,1n -k2 | awk '{ print $2 }' >"$work/commands"
{
  grep -vxFf "$work/serving" "$work/commands"
  grep -xFf "$work/serving" "$work/commands" | tac
  cat "$work/serving" "$work/watching" "$work/serving.before"
} | sed -E 's/\.llvm\.[0-9]+$//' | awk '!seen[$0]++' >"$work/order"
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
  python3 "$here/patterns.py" "$program" <"$work/order" | sed 's/.*/    *(.text.&* .text.unlikely.&*)/'
  c_functions | sed 's/.*/    *(.text.&)/'
  members | sed 's/.*/    *libc.a:&(.text .text.*)/'
  printf '  }\n} INSERT BEFORE .text;\n'
} >src/startup.ld
wc -l src/startup.ld
