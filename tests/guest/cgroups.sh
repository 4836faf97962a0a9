#!/usr/bin/env bash
# boot: --delegate --timeout 1200 --mem 1500
# The tests that need a delegated cgroup: tests/it/cgroup.rs and those of src/exec/cgroup.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"

SLOTD_TEST_CGROUP=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
export SLOTD_TEST_CGROUP SLOTD_TEST_PROGRAM=$PROGRAMS/slotd SLOTD_TEST_HELPER=$PROGRAMS/helper
# A cgroup with limited children may not contain processes.
mkdir "$SLOTD_TEST_CGROUP/tests"
echo $$ >"$SLOTD_TEST_CGROUP/tests/cgroup.procs"

# Converts the lines of a test program to checks of a scenario.
lines() { sed -E 's/^test (.*) \.\.\. ok$/ok - \1/; s/^test (.*) \.\.\. FAILED$/FAIL - \1/'; }
"$PROGRAMS/exec-tests" cgroup --test-threads 1 2>&1 | lines
"$PROGRAMS/tests" cgroup:: --skip accurate_to_five_percent --test-threads 2 2>&1 | lines
# This test measures over time, so it runs alone. Its table is shown. An emulated processor is too slow
# for it.
if [[ $(systemd-detect-virt) == qemu ]]; then
  printf 'the accuracy of the measurements is not tested: the processor is emulated\n'
else
  "$PROGRAMS/tests" accurate_to_five_percent --show-output 2>&1 | lines
fi
finish
