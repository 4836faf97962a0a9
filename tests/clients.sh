#!/usr/bin/env bash
# Programs that drive Slurm by its commands, unmodified, against a daemon of their own: submitit, simple-slurm, reportseff.
# They come from PyPI into a temporary virtual environment.
#
#   tests/clients.sh [SLOTD]        SLOTD is the binary, by default target/debug/slotd
#
# The last line is "N passed, N failed".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
slotd=$(realpath "${1:-$here/../target/debug/slotd}")

work=$(mktemp -d)
daemon=
ended() {
  if [[ -n $daemon ]]; then
    scancel --me || true
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
  fi
  rm -rf "$work"
}
trap ended EXIT

python3 -m venv "$work/venv"
# Modules are compiled when they are first used: most never are.
"$work/venv/bin/pip" install --no-compile --quiet --disable-pip-version-check -r "$here/clients/requirements.txt"

mkdir "$work/bin" "$work/home"
for name in slotd sbatch srun salloc squeue sacct scontrol scancel sinfo; do ln -s "$slotd" "$work/bin/$name"; done
# Nothing of the caller's may steer the commands or the clients.
while read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(SLOTD|SLURM|SBATCH|SRUN|SALLOC|SQUEUE|SACCT|SINFO|SUBMITIT)_' || true)
export SLOTD_ROOT=$work/root SLOTD_CPUS=4 SLOTD_MEMORY_MB=8000 SLOTD_KILL_WAIT=5
export HOME=$work/home USER="${USER:-$(id -un)}" PATH=$work/bin:$work/venv/bin:$PATH

slotd daemon 2>"$work/daemon.log" &
daemon=$!
until sinfo >"$work/sinfo" 2>&1; do
  kill -0 "$daemon" || { cat "$work/daemon.log"; exit 1; }
done

# Each part prints "ok WHAT" and "not ok WHAT: WHY"; one that ends early has failed.
part() {
  local name=$1
  shift
  mkdir "$work/$name"
  if ! (cd "$work/$name" && timeout 120 "$@") >"$work/$name.log" 2>&1; then
    echo "not ok $name: ended early" >>"$work/$name.log"
  fi
  grep -E '^(not )?ok ' "$work/$name.log" | sed "s/ok /&$name: /" | tee -a "$work/results"
  if grep -q '^not ok' "$work/$name.log"; then tail -n 60 "$work/$name.log" | sed 's/^/    /'; fi
}

echo "clients installed after $SECONDS s"
part submitit python3 "$here/clients/with_submitit.py" &
part simple-slurm python3 "$here/clients/with_simple_slurm.py" &
wait %2 %3
part reportseff python3 "$here/clients/with_reportseff.py"

passed=$(grep -c '^ok ' "$work/results" || true)
failed=$(grep -c '^not ok ' "$work/results" || true)
echo "took $SECONDS s"
echo "$passed passed, $failed failed"
[[ $passed -gt 0 && $failed -eq 0 ]]
