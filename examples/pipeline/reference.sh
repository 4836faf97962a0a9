#!/usr/bin/env bash
# Prints the same result, computed in one pipe without slotd.
set -euo pipefail
export LC_ALL=C

find "${TEXTS:-/usr/share/common-licenses}" -type f -exec cat {} + |
  tr -cs '[:alpha:]' '[\n*]' | tr '[:upper:]' '[:lower:]' | sed '/^$/d' | sort | uniq -c |
  awk '{ print $1, $2 }' | sort -k 1,1nr -k 2,2
