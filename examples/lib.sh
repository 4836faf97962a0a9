# Shared by the examples: a temporary directory to run in, and functions that compare expected and
# actual values.
# shellcheck shell=bash
set -euo pipefail

workdir=$(mktemp -d)
trap 'rm -rf "$workdir"' EXIT
cd "$workdir"

# expect WHAT WANTED GOT: prints the result, and exits if they differ.
expect() {
  if [[ $2 == "$3" ]]; then
    printf 'ok: %s: %s\n' "$1" "${3//$'\n'/ | }"
  else
    printf 'FAILED: %s: expected %s, got %s\n' "$1" "${2//$'\n'/ | }" "${3//$'\n'/ | }"
    exit 1
  fi
}

# until_is WANTED COMMAND...: waits up to two minutes until the command prints WANTED.
until_is() {
  local wanted=$1 got=''
  local -i give_up=$((SECONDS + 120))
  shift
  until got=$("$@") && [[ $got == "$wanted" ]]; do
    if ((SECONDS >= give_up)); then
      printf 'FAILED: %s: still %s, not %s\n' "$*" "$got" "$wanted"
      exit 1
    fi
    sleep 0.1
  done
}

# own_daemon [NAME=VALUE...]: starts a daemon for this example only, with standard input as its
# slotd.toml. It is stopped with its jobs when the script exits.
own_daemon() {
  export SLOTD_ROOT=$workdir/root
  cat >slotd.toml
  env SLOTD_CONFIG="$workdir/slotd.toml" SLOTD_GPU_COUNT=0 "$@" slotd daemon 2>daemon.log &
  daemon=$!
  trap 'scancel -u "$(id -un)" 2>/dev/null; until_is "" squeue -h || true; kill "$daemon"; wait "$daemon" || true; rm -rf "$workdir"' EXIT
  until_is yes answers
}

# Prints whether the daemon answers.
answers() { sinfo >sinfo.out 2>&1 && echo yes || echo no; }

# Prints the state of a job from sacct.
state_of() { sacct -X -n -P -o State -j "$1"; }
