#!/usr/bin/env bash
# One job on each CPU: as many jobs of one CPU run as there are CPUs, and a CPU that becomes free is given out at once.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=2 </dev/null

running() { squeue -h -t R -o %j -S i | paste -s -d ' '; }
submit() { sbatch --parsable -J "$1" -o /dev/null --mem 64M --wrap 'exec sleep 100'; }
first=$(submit first)
submit second >/dev/null
submit third >/dev/null
until_is "first second" running
expect "two seats are sold" "first second" "$(running)"
scancel "$first"
until_is "second third" running
expect "the free seat is sold again" "second third" "$(running)"
