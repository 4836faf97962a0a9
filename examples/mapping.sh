#!/usr/bin/env bash
# The CPUs of each task: "by slot" fills one socket after the other (-m block), "by node" alternates
# between them (-m cyclic). With one socket both are the same.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=100% </dev/null

node() { scontrol show node | grep -o "$1=[0-9]*" | cut -d= -f2; }
sockets=$(node Sockets)
tasks=$((sockets * $(node CoresPerSocket)))
# Prints the socket number of a CPU.
socket_of() {
  local file=/sys/devices/system/cpu/cpu$1/topology/physical_package_id
  if ((sockets == 1)); then echo 0; else cat "$file"; fi
}
# Prints the number of sockets used by the first two tasks, with one core each.
first_two() {
  srun -n "$tasks" --threads-per-core=1 -m "$1" --cpu-bind=cores --label sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' \
    /proc/self/status | sort -n | head -n 2 | while read -r _ cpu; do socket_of "$cpu"; done | uniq | wc -l
}
if ((tasks < 2)); then
  expect "sockets of the only task" 1 "$(first_two block)"
else
  expect "sockets of the first two tasks by slot" "$((tasks == sockets ? 2 : 1))" "$(first_two block)"
  expect "sockets of the first two tasks by node" "$((sockets > 1 ? 2 : 1))" "$(first_two cyclic)"
fi
