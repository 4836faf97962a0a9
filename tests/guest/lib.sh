# shellcheck shell=bash
# What the scenarios share. Each check prints one line, "ok - ..." or "FAIL - ..."; the scenario goes on either way.
set -u
PATH=$HOME/.local/bin:$PROGRAMS:$PATH
fails=0

ok() { printf 'ok - %s\n' "$1"; }
no() {
  printf 'FAIL - %s\n' "$1"
  fails=$((fails + 1))
}

# is WHAT FOUND WANTED
is() { if [[ $2 == "$3" ]]; then ok "$1"; else no "$1: found \"$2\", wanted \"$3\""; fi; }

# has WHAT TEXT PART
has() { if [[ $2 == *"$3"* ]]; then ok "$1"; else no "$1: \"$3\" is not in \"$2\""; fi; }

# yes WHAT COMMAND...
yes() {
  local what=$1 said
  shift
  if said=$("$@" 2>&1); then ok "$what"; else no "$what: $* failed: $said"; fi
}

# Waits until a command is true; false at the deadline.
until_true() {
  local end=$((SECONDS + 90))
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

# The last line of each scenario.
finish() { exit $((fails > 0)); }
