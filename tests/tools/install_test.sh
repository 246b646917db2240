#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs the build into a folder of its own, and builds and runs a program outside the tree
# against it: by find_package with both libraries, and by pkg-config.
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
LD_LIBRARY_PATH="$lib" "$work/by_pkgconfig"

echo "the installed program"
"$work/prefix/bin/ringforge" --version
