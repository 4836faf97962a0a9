#!/usr/bin/env bash
# Which seat a task gets: "by slot" fills one socket after the other (-m block), "by node" takes them in turn (-m cyclic). On a
# host with one socket both are the same.
. "$(dirname "$0")/lib.sh"

own_daemon SLOTD_CPUS=100% </dev/null

node() { scontrol show node | grep -o "$1=[0-9]*" | cut -d= -f2; }
sockets=$(node Sockets)
tasks=$((sockets * $(node CoresPerSocket)))
# Of each CPU the place of its socket among the sockets of this host.
socket_of() {
  local file=/sys/devices/system/cpu/cpu$1/topology/physical_package_id
  if ((sockets == 1)); then echo 0; else cat "$file"; fi
}
# The sockets of the first two tasks, one core each.
first_two() {
  srun -n "$tasks" --threads-per-core=1 -m "$1" --cpu-bind=cores --label sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' \
    /proc/self/status | sort -n | head -n 2 | while read -r _ cpu; do socket_of "$cpu"; done | uniq | wc -l
}
if ((tasks < 2)); then
  expect "one core has one task" 1 "$(first_two block)"
else
  expect "sockets of the first two tasks by slot" "$((tasks == sockets ? 2 : 1))" "$(first_two block)"
  expect "sockets of the first two tasks by node" "$((sockets > 1 ? 2 : 1))" "$(first_two cyclic)"
fi
