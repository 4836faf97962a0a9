#!/usr/bin/env bash
# Output files: patterns, a separate file for errors, appending.
. "$(dirname "$0")/lib.sh"

id=$(sbatch --parsable -W --wrap 'echo default')
expect "slurm-$id.out" default "$(cat "slurm-$id.out")"

mkdir out err # Slurm does not create them
id=$(sbatch --parsable -W -J named -o 'out/%x-%j-%u.txt' -e 'err/%j.txt' --wrap 'echo to out; echo to err >&2')
expect "out/named-$id-$(id -un).txt" "to out" "$(cat "out/named-$id-$(id -un).txt")"
expect "err/$id.txt" "to err" "$(cat "err/$id.txt")"

sbatch -W -o '100%%.out' --open-mode append --wrap 'echo once'
sbatch -W -o '100%%.out' --open-mode append --wrap 'echo twice'
expect "100%.out" "once
twice" "$(cat 100%.out)"

mkdir elsewhere
sbatch -W -D elsewhere -o here.out --wrap 'basename "$PWD"'
expect "elsewhere/here.out" elsewhere "$(cat elsewhere/here.out)"
