#!/usr/bin/env bash
# A GPU job gets its own GPUs, listed in CUDA_VISIBLE_DEVICES.
. "$(dirname "$0")/lib.sh"

if ! sinfo -h -o %P | grep -qx 'gpu\*\?'; then
  echo "skipped: this machine has no gpu partition (nvidia-smi finds no GPU)"
  exit 0
fi

# The partition allocates one GPU by default.
id=$(sbatch --parsable -W -J gpu-demo -p gpu -t 00:05:00 -o gpu.out --wrap 'echo "$CUDA_VISIBLE_DEVICES"')
expect "job $id sees one GPU" 1 "$(tr ',' '\n' <gpu.out | grep -c .)"

# Jobs without GPUs see none.
sbatch -W -o cpu.out --wrap 'echo "GPUs: ${CUDA_VISIBLE_DEVICES:-none}"'
expect "a CPU job" "GPUs: none" "$(cat cpu.out)"
