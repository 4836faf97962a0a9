#!/usr/bin/env bash
# -n N runs N processes side by side. Each knows its rank.
. "$(dirname "$0")/lib.sh"

expect "srun -n 2" "0: rank 0 of 2
1: rank 1 of 2" "$(srun -n 2 --label -- sh -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"' | sort)"

sbatch -W -n 2 -o ranks.out --wrap 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"'
expect "sbatch -n 2" "rank 0 of 2
rank 1 of 2" "$(sort ranks.out)"
