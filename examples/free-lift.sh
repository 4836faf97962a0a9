#!/usr/bin/env bash
# Nobody rides free: what was started beside the queue takes seats, which are not sold then (SLOTD_CPU_FOREIGN=avoid).
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPU_FOREIGN=avoid SLOTD_CPUS=100% </dev/null

all=$(sinfo -h -o %c)
loops=()
for ((i = 0; i < all; i++)); do
  # shellcheck disable=SC2016 # for the other shell; it ends by itself where this example does not end it
  timeout 100 sh -c 'while :; do :; done' &
  loops+=($!)
done
job=$(sbatch --parsable -c "$all" -o /dev/null --mem 64M --wrap true)
reason() { squeue -h -j "$job" -o %r; }
until_is Resources reason
expect "a job that needs all CPUs waits for" "Resources" "$(reason)"
expect "and says who has them" "SystemComment=processes that are no job's use" \
  "$(scontrol show job "$job" | sed 's|\\040| |g' | grep -o "SystemComment=processes that are no job's use")"
expect "and so does the node" "CPUForeignLoad CPUForeign" \
  "$(scontrol show node | grep -o 'CPUForeign[A-Za-z]*' | paste -s -d ' ')"
kill "${loops[@]}"
