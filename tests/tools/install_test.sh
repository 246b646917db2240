#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs the build into a folder of its own, and builds and runs a program outside the tree
# against it: by find_package with both libraries, by pkg-config, and by the README's own lines.
# Usage: install_test.sh BUILD_DIR SOURCE_DIR
set -eu
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp -r "$source/tests/tools/consumer" "$work/consumer"

echo "by find_package"
cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
    >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/build/consumer_shared"
"$work/build/consumer_static"

echo "by pkg-config"
lib=$(dirname "$(find "$work/prefix" -name 'libringforge.so')")
export PKG_CONFIG_PATH="$lib/pkgconfig"
cc -std=c11 -Wall -Werror -o "$work/by_pkgconfig" "$work/consumer/consumer.c" \
    $(pkg-config --cflags --libs ringforge) -lpthread
"$work/by_pkgconfig"
LC_ALL=C pkg-config --libs ringforge | grep -q -e -rpath
DESTDIR="$work/system" cmake --install "$build" --prefix /usr >>"$work/install.log"
if grep -r -e -rpath "$work/system" --include=ringforge.pc; then
    echo "a folder that every loader knows is written into programs"
    exit 1
fi

echo "by the README's lines, at a home of one's own"
mkdir "$work/home" "$work/tree"
ln -s "$build" "$work/tree/build"
# The first C block below "Use it", and the commands that follow it.
awk -v folder="$work/tree" '
    /^## /  { here = /^## Use it/ }
    /^```/  { if (here && !inside) block++; inside = !inside; next }
    inside && here && block == 1 { print > (folder "/sum.c") }
    inside && here && block == 2 { print > (folder "/lines.sh") }
' "$source/README.md"
(
    cd "$work/tree"
    unset PKG_CONFIG_PATH LD_LIBRARY_PATH
    HOME="$work/home" sh -eu lines.sh >"$work/lines.log" 2>&1 || { cat "$work/lines.log"; exit 1; }
)
grep "rank 3 of 4: 4$" "$work/lines.log" || { cat "$work/lines.log"; exit 1; }

echo "the installed program"
"$work/prefix/bin/ringforge" --version
