#!/usr/bin/env bash
# CPUs used by processes outside the queue are not allocated to jobs (SLOTD_CPU_FOREIGN=avoid).
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPU_FOREIGN=avoid SLOTD_CPUS=100% </dev/null

all=$(sinfo -h -o %c)
loops=()
for ((i = 0; i < all; i++)); do
  # shellcheck disable=SC2016 # expanded by the other shell. The timeout ends the loop if this example
  # fails to.
  timeout 100 sh -c 'while :; do :; done' &
  loops+=($!)
done
job=$(sbatch --parsable -c "$all" -o /dev/null --mem 64M --wrap true)
reason() { squeue -h -j "$job" -o %r; }
until_is Resources reason
expect "reason of a job that needs all CPUs" "Resources" "$(reason)"
expect "and reports why" "SystemComment=processes outside jobs use" \
  "$(scontrol show job "$job" | sed 's|\\040| |g' | grep -o "SystemComment=processes outside jobs use")"
expect "and so does the node" "CPUForeignLoad CPUForeign" \
  "$(scontrol show node | grep -o 'CPUForeign[A-Za-z]*' | paste -s -d ' ')"
kill "${loops[@]}"
