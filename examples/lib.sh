# What the examples share: a directory of their own to run in, and a way to tell what was expected and what came.
# shellcheck shell=bash
set -euo pipefail

workdir=$(mktemp -d)
trap 'rm -rf "$workdir"' EXIT
cd "$workdir"

# expect WHAT WANTED GOT: prints both; the example fails where they differ.
expect() {
  if [[ $2 == "$3" ]]; then
    printf 'ok: %s: %s\n' "$1" "${3//$'\n'/ | }"
  else
    printf 'FAILED: %s: expected %s, got %s\n' "$1" "${2//$'\n'/ | }" "${3//$'\n'/ | }"
    exit 1
  fi
}

# until_is WANTED COMMAND...: waits two minutes at most until the command prints that.
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

# own_daemon [NAME=VALUE...]: a daemon for this example alone, with what standard input says as its slotd.toml. It ends with
# the script, and its jobs with it.
own_daemon() {
  export SLOTD_ROOT=$workdir/root
  cat >slotd.toml
  env SLOTD_CONFIG="$workdir/slotd.toml" SLOTD_GPU_COUNT=0 "$@" slotd daemon 2>daemon.log &
  daemon=$!
  trap 'scancel -u "$(id -un)" 2>/dev/null; until_is "" squeue -h || true; kill "$daemon"; wait "$daemon" || true; rm -rf "$workdir"' EXIT
  until_is yes answers
}

# Whether the daemon does.
answers() { sinfo >sinfo.out 2>&1 && echo yes || echo no; }

# The state of a job, as sacct has it.
state_of() { sacct -X -n -P -o State -j "$1"; }
