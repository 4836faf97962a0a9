#!/usr/bin/env bash
# Cancel a job, or send it a signal.
. "$(dirname "$0")/lib.sh"

waiting=$(sbatch --parsable --begin now+1hour --wrap 'echo never')
scancel "$waiting"
expect "a pending job" CANCELLED "$(state_of "$waiting" | cut -d ' ' -f 1)"

running=$(sbatch --parsable -o /dev/null --wrap 'sleep 600')
until_is RUNNING state_of "$running"
scancel "$running"
cancelled() { state_of "$running" | cut -d ' ' -f 1; }
until_is CANCELLED cancelled
expect "a running job" CANCELLED "$(cancelled)"

signalled=$(sbatch --parsable -o signalled.out --wrap 'trap "echo got USR1; exit 0" USR1; echo ready; while :; do sleep 0.1; done')
until_is ready cat signalled.out 2>/dev/null
scancel --signal USR1 --batch "$signalled"
until_is COMPLETED state_of "$signalled"
expect "a signal" "ready
got USR1" "$(cat signalled.out)"
