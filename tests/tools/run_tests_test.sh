#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ci/run_tests.sh with programs that only pretend: what it counts, what it keeps, when time is over.
#
#   run_tests_test.sh SOURCE_DIR
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$1"
    cat "$work/log"
    exit 1
}
cd "$work"
unset RUN_TESTS_UNTIL RUN_TESTS_KEPT RUN_TESTS_ON RUN_TESTS_TREE RUN_TESTS_SHARDS RUN_TESTS_BESIDE
mkdir -p tests/part tests/support build/part
program=build/part/stub_test
write() { # write STATUS: a program with one test, which notes that it has run
    printf '#!/bin/sh\necho run >>runs\necho "[       OK ] A.Test (1 ms)"\nexit %s\n' "$1" >$program
    chmod +x $program
}
# again RUNS STATUS MESSAGE [VARIABLE=VALUE...]: runs it; it must have run so often, and given this status
again() {
    : >runs
    runs=$1 status=0 want=$2 message=$3
    shift 3
    env RUN_TESTS_KEPT="$work/kept" "$@" "$source/ci/run_tests.sh" "$work/all" 1 20 env "$work/$program" \
        >"$work/log" 2>&1 || status=$?
    [ "$status" = "$want" ] || fail "$message: status $status, not $want"
    [ "$(grep -c run runs || true)" = "$runs" ] || fail "$message: $(grep -c run runs || true) runs, not $runs"
    told=''
    [ "$runs" = 1 ] || told='; 1 parts of programs passed before and were not run again'
    grep -qx "1 passed, 0 failed, 0 skipped$told" "$work/log" || fail "$message: the count is wrong"
}
write 1
again 1 1 "a program that fails"
again 1 1 "a program that failed is run again"
write 0
again 1 0 "one that has changed is run"
again 0 0 "one that has passed is not run again"
echo data >tests/part/data.txt
again 1 0 "after a change of the files beside its sources"
again 0 0 "which pass, too"
printf '#!/bin/sh\n' >build/part/helper
chmod +x build/part/helper
again 1 0 "after a change of a program beside it"
again 1 0 "with another filter" GTEST_FILTER=A.*
again 1 0 "with a variable of ours" RF_CHECK_RANGES=1
again 1 0 "with another provider of libfabric" FI_PROVIDER=tcp
again 1 0 "on another driver" RUN_TESTS_ON=other
again 0 0 "as it was"
again 0 0 "the tree is for those that start programs" RUN_TESTS_TREE=1
mv tests/part tests/tools
mv build/part build/tools
program=build/tools/stub_test
again 1 0 "one in the folder tools" RUN_TESTS_TREE=1
again 0 0 "in the same tree" RUN_TESTS_TREE=1
again 1 0 "in another tree" RUN_TESTS_TREE=2

# Tests that do not come to an end by a given time are not failures, and are named.
printf '#!/bin/sh\necho "[ RUN      ] Slow.Test"\nexec sleep 1000\n' >"$work/slow_test"
chmod +x "$work/slow_test"
RUN_TESTS_UNTIL=$(($(date +%s) + 2)) "$source/ci/run_tests.sh" "$work/slow" 1 20 env "$work/slow_test" >"$work/log" ||
    fail "tests that were ended make a failure"
grep -q '^OUT OF TIME: slow_test, part 0, at Slow.Test$' "$work/log" || fail "what was running when time was over is not named"
grep -q '^0 passed, 0 failed, 0 skipped$' "$work/log" || fail "tests that were ended count as failed"
echo "tests are run, counted and kept as they should be"
