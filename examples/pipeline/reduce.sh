#!/usr/bin/env bash
# Adds up the counts of all parts. The most frequent word comes first.
set -euo pipefail
export LC_ALL=C

echo reduce >>runs
sleep "${PAUSE:-0}"

awk '{ sum[$2] += $1 } END { for (word in sum) print sum[word], word }' counts/{0..7} |
  sort -k 1,1nr -k 2,2 >result.txt
