#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The check of circles finds two files that need each other, a circle by way of a third one, two folders of
# a layer that do, and nothing in files that stand above each other.
# Usage: check_cycles_test.sh CHECK_SCRIPT C_COMPILER
set -eu
check=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/part"
failures=0

# file PATH CALLS...: PATH.c defines the function of its name, which calls the others
file() {
    name=$(basename "$1") path=$work/src/part/$1.c
    shift
    mkdir -p "$(dirname "$path")"
    for called in "$@"; do echo "void $called(void);"; done >"$path"
    {
        echo "void $name(void);"
        echo "static void same(void) {}" # not a need of anybody, though all files have it
        echo "void $name(void) { same();"
        for called in "$@"; do echo "$called();"; done
        echo "}"
    } >>"$path"
    "$compiler" -c -o "$path.o" "$path"
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
file bottom
file middle bottom
file low/one
file high/two one
file low/three two
expect 1 'these 2 folders' 'two folders, though no two files of them need each other'
file low/three one
expect 0 'no two folders' 'folders that stand above each other'
: >"$work/list"
status=0
"$check" "$work/list" >"$work/out" 2>&1 || status=$?
if [ $status != 2 ]; then
    echo "FAILED: an empty list has status $status, wanted 2"
    failures=1
fi
exit $failures
