#!/usr/bin/env bash
# Precedence of options: the command line, then SBATCH_* variables, then #SBATCH lines.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"
name_of() { sacct -X -n -P -o JobName -j "$1"; }

expect "the script alone" script-demo "$(name_of "$(sbatch --parsable -W "$jobs/script-demo.sh")")"
export SBATCH_JOB_NAME=from-variable
expect "with a variable" from-variable "$(name_of "$(sbatch --parsable -W "$jobs/script-demo.sh")")"
expect "with an option" from-option "$(name_of "$(sbatch --parsable -W -J from-option "$jobs/script-demo.sh")")"
