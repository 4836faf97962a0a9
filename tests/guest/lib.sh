# shellcheck shell=bash
# Shared by the scenarios. Each check prints one line, "ok - ..." or "FAIL - ..."; the scenario
# continues either way.
set -u
PATH=$HOME/.local/bin:$PROGRAMS:$PATH
fails=0

ok() { printf 'ok - %s\n' "$1"; }
no() {
  printf 'FAIL - %s\n' "$1"
  fails=$((fails + 1))
}

# is WHAT FOUND WANTED
is() { if [[ $2 == "$3" ]]; then ok "$1"; else no "$1: got \"$2\", expected \"$3\""; fi; }

# has WHAT TEXT PART
has() { if [[ $2 == *"$3"* ]]; then ok "$1"; else no "$1: \"$3\" is not in \"$2\""; fi; }

# yes WHAT COMMAND...
yes() {
  local what=$1 out
  shift
  if out=$("$@" 2>&1); then ok "$what"; else no "$what: $* failed: $out"; fi
}

# Waits until a command succeeds.
until_true() {
  local end=$((SECONDS + 300))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= end)); then
      no "timed out waiting for: $*"
      return
    fi
    sleep 0.1
  done
}

state() { sacct -nXP -j "$1" -o State; }
is_state() { [[ $(state "$1") == "$2"* ]]; }
# Waits for a state, and checks the final one.
state_is() {
  until_true is_state "$2" "$3"
  has "$1" "$(state "$2")" "$3"
}

# Runs the installer as users do, with the program built for the tests. It configures more resources
# than this small machine has.
install_slotd() {
  mkdir -p ~/built/debug ~/.config/slotd
  if [[ ! -e ~/.config/slotd/slotd.env ]]; then
    printf 'SLOTD_CPUS="4"\nSLOTD_MEMORY_MB="8192"\nSLOTD_KILL_WAIT="20"\n' >~/.config/slotd/slotd.env
  fi
  ln -sf "$PROGRAMS/slotd" ~/built/debug/slotd
  CARGO_TARGET_DIR=~/built "$REPO/contrib/install.sh" --skip-build --profile dev "$@"
}

# As root: runs a script in a new login session of the user.
as_dev() {
  systemd-run --quiet --wait --pipe --collect --uid=dev --gid=dev -p PAMName=login -p OOMPolicy=continue \
    --setenv=REPO="$REPO" --setenv=PROGRAMS="$PROGRAMS" bash -c ". $REPO/guest/lib.sh; cd; $1; finish"
}

# Must be the last line of each scenario.
finish() { exit $((fails > 0)); }
