#!/usr/bin/env bash
# Passing environment variables to a job.
. "$(dirname "$0")/lib.sh"

sbatch -W -o values.out --export FOO=bar,HELLO=world --wrap 'echo "$FOO $HELLO"'
expect "--export KEY=VALUE" "bar world" "$(cat values.out)"

export MINE=here
sbatch -W -o all.out --wrap 'echo "${MINE:-gone}"'
expect "by default" here "$(cat all.out)"
sbatch -W -o none.out --export NONE --wrap 'echo "${MINE:-gone}"'
expect "--export NONE" gone "$(cat none.out)"

# NAME=value entries separated by null bytes, as in /proc/PID/environ.
printf 'COLOUR=deep blue\0SIZE=4\0' >job.env
sbatch -W -o file.out --export-file job.env --wrap 'echo "$COLOUR $SIZE"'
expect "--export-file" "deep blue 4" "$(cat file.out)"
