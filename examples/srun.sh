#!/usr/bin/env bash
# A command in the foreground, with its resources allocated while it runs.
. "$(dirname "$0")/lib.sh"

expect "--label" "0: hello" "$(srun --label --unbuffered -- echo hello)"
expect "standard input" "a line" "$(echo 'a line' | srun cat)"
