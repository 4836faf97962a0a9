#!/usr/bin/env bash
# One job per CPU: a freed CPU is allocated again immediately.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=2 </dev/null

running() { squeue -h -t R -o %j -S i | paste -s -d ' '; }
submit() { sbatch --parsable -J "$1" -o /dev/null --mem 64M --wrap 'exec sleep 100'; }
first=$(submit first)
submit second >/dev/null
submit third >/dev/null
until_is "first second" running
expect "two jobs on two CPUs" "first second" "$(running)"
scancel "$first"
until_is "second third" running
expect "after one of them has ended" "second third" "$(running)"
