#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The check of circles finds two files that need each other, a circle by way of a third one, two folders
# of a layer that need each other by different files, and nothing in what stands above each other.
# Usage: check_cycles_test.sh CHECK_SCRIPT C_COMPILER
set -eu
check=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/part/low" "$work/src/part/high"
folder=src/part
failures=0

# file NAME CALLS...: NAME.c defines the function NAME, which calls the others
file() {
    name=$1
    shift
    for called in "$@"; do echo "void $called(void);"; done >"$work/$folder/$name.c"
    {
        echo "void $name(void);"
        echo "static void same(void) {}" # not a need of anybody, though all files have it
        echo "void $name(void) { same();"
        for called in "$@"; do echo "$called();"; done
        echo "}"
    } >>"$work/$folder/$name.c"
    "$compiler" -c -o "$work/$folder/$name.c.o" "$work/$folder/$name.c"
}
expect() { # EXPECTED_STATUS PATTERN NAME
    find "$work/src" -name '*.o' >"$work/list"
    status=0
    "$check" "$work/list" >"$work/out" 2>&1 || status=$?
    if [ "$status" != "$1" ] || ! grep -q "$2" "$work/out"; then
        echo "FAILED: $3: status $status, wanted $1 and /$2/:"
        cat "$work/out"
        failures=1
    fi
}

file bottom
file middle bottom abroad
file top middle bottom
expect 0 'no two need each other' 'files that stand above each other'
file bottom middle
expect 1 'src/part/bottom.c needs src/part/middle.c: middle' 'two files that need each other'
expect 1 'these 2 files' 'who only needs two of a circle is not in it'
file bottom top
file middle bottom
file top middle
expect 1 'these 3 files' 'a circle by way of a third file'
rm "$work"/src/part/*.o
folder=src/part/low
file bottom
file other bottom
folder=src/part/high
file middle bottom other
file top
expect 0 'no two folders' 'a folder that stands above another'
folder=src/part/low
file other top
expect 1 'src/part/low needs src/part/high: top' 'two folders that need each other by different files'
expect 1 'these 2 folders' 'the folders are counted'
: >"$work/list"
status=0
"$check" "$work/list" >"$work/out" 2>&1 || status=$?
if [ $status != 2 ]; then
    echo "FAILED: an empty list has status $status, wanted 2"
    failures=1
fi
exit $failures
