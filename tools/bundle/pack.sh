#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Packs what a build with RF_BUNDLE made into one archive that runs from any folder of a Linux with a
# Vulkan driver: programs, tests, the libraries they need and their licences. Called by forge, on
# Debian, where libraries know their packages.
#
#   pack.sh BUILD FOLDER VERSION       FOLDER gets ringforge-VERSION-linux-MACHINE, and that as .tar.xz
set -eu

build=$1 folder=$2 version=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
name=ringforge-$version-linux-$(uname -m)
MOST_MIB=40
# The machine's own, always: the C library, which fits its kernel and its loader.
SYSTEM='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libnsl)\.so'
# Loaded by name, so that no program says that it needs them.
LOADED=libvulkan.so.1
# What NVIDIA's driver needs besides itself; containers often lack it. Used by gpu-day.sh alone.
DRIVERS_OWN="libX11.so.6 libXext.so.6 libGLdispatch.so.0"
# Parts of our own programs rather than files beside them.
BUILT_IN="libstdc++6 libgcc-s1 libgtest-dev libvulkan-dev libvulkan-volk-dev"

die() {
    printf 'pack.sh: %s\n' "$*" >&2
    exit 1
}
command -v dpkg-query >/dev/null || die "a bundle is made on Debian: its packages say under what licence a library comes"

# ---- libraries -----------------------------------------------------------------------------------

# needs FILE...: "name path" of every library that these files need, as this machine resolves them
needs() {
    for n_file in "$@"; do
        ldd "$n_file" | sed -n 's/^[ \t]*\([^ ]*\) => \([^ ]*\) (.*/\1 \2/p; s/^[ \t]*\([^ ]*\) => not found.*/\1 missing/p'
    done | sort -u
}

# path_of NAME: where this machine's loader finds a library
path_of() {
    ldconfig -p | sed -n "s/^[ \t]*$1 (.*x86-64.*) => //p; s/^[ \t]*$1 (.*AArch64.*) => //p" | head -n 1
}

# package_of FILE
package_of() {
    for p_file in "$1" "/usr$1" "$(readlink -f "$1")"; do
        dpkg-query -S "$p_file" 2>/dev/null | sed -n '1s/[:,].*//p'
    done | head -n 1
}

# copy_library NAME PATH TO
copy_library() {
    [ -r "$2" ] || die "the library $1 is not on this machine"
    cp -L "$2" "$3/$1"
    chmod 644 "$3/$1"
    package_of "$2" >>packages
}

# bring TO FILE...: what these files need, unless it is the system's or there already
bring() {
    b_to=$1
    shift
    needs "$@" | while read -r b_name b_path; do
        if printf '%s\n' "$b_name" | grep -Eq "$SYSTEM" || [ -e "$name/lib/$b_name" ] || [ -e "$b_to/$b_name" ]; then
            continue
        fi
        copy_library "$b_name" "$b_path" "$b_to"
    done
}

# The newest version of the C library that any file asks for.
floor() {
    find "$name" -type f \( -perm -u+x -o -name '*.so*' \) | while read -r f_file; do
        objdump -T "$f_file" 2>/dev/null | sed -n 's/.*GLIBC_\([0-9][0-9.]*\).*/\1/p'
    done | sort -uV | tail -n 1
}

# ---- licences ------------------------------------------------------------------------------------

licences() {
    mkdir -p "$name/LICENSES/common-licenses"
    cp "$source/LICENSE" "$name/LICENSES/ringforge"
    for l_package in $(sort -u packages) $BUILT_IN; do
        l_file=/usr/share/doc/$l_package/copyright
        [ -r "$l_file" ] || die "there is no $l_file, and a library is not passed on without its licence"
        cp -L "$l_file" "$name/LICENSES/$l_package"
    done
    # Debian's copyright files point to texts that other systems do not have.
    grep -oh '/usr/share/common-licenses/[A-Za-z0-9.+-]*[A-Za-z0-9]' "$name"/LICENSES/* 2>/dev/null |
        sort -u | while read -r l_file; do
        [ ! -r "$l_file" ] || cp -L "$l_file" "$name/LICENSES/common-licenses/"
    done
}

# ---- what lies where -----------------------------------------------------------------------------

test_programs() {
    find "$build/tests/device" "$build/tests/ops" "$build/tests/train" -maxdepth 1 -type f -perm -u+x
}

build=$(cd "$build" && pwd)
mkdir -p "$folder"
cd "$folder"
rm -rf "$name" "$name.tar.xz" packages
mkdir -p "$name/bin" "$name/lib/driver" "$name/tests"
: >packages
echo "programs"
cp "$build/ringforge" "$build/bench/yardstick" "$name/bin/"
cp "$build/src/libringforge_shown.so" "$name/lib/"
test_programs | while read -r file; do
    cp "$file" "$name/tests/"
done
find "$source/tests/ops" "$source/tests/train" -maxdepth 1 -name '*.txt' ! -name CMakeLists.txt -exec cp {} "$name/tests/" \;
cp -r "$source/tests/train/checkpoint_format_2" "$name/tests/"
cp "$source/ci/run_tests.sh" "$name/tests/"
cp "$source/tools/bundle/gpu-day.sh" "$source/tools/bundle/ringforge" "$name/"
cp "$source/tools/bundle/report.sh" "$source/tools/bundle/torch_peer.py" "$name/bin/"
cp "$source/README.md" "$name/lib/text.txt" # something to learn from

echo "libraries"
bring "$name/lib" "$name"/bin/ringforge "$name"/bin/yardstick "$name"/lib/*.so "$name"/tests/*_test
for library in $LOADED; do
    copy_library "$library" "$(path_of "$library")" "$name/lib"
done
for library in $DRIVERS_OWN; do
    copy_library "$library" "$(path_of "$library")" "$name/lib/driver"
done
bring "$name/lib/driver" "$name"/lib/driver/*
rm -f "$name"/lib/driver/libstdc++.so.6 "$name"/lib/driver/libgcc_s.so.1

echo "licences"
licences
glibc=$(floor)
sed -e "s/@VERSION@/$version/g; s/@GLIBC@/$glibc/g; s/@NAME@/$name/g" "$source/tools/bundle/README.txt" >"$name/README.txt"
for file in ringforge gpu-day.sh; do
    sed -i "s/@GLIBC@/$glibc/g" "$name/$file"
    chmod 755 "$name/$file"
done
rm packages

echo "archive"
tar --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" | xz -T0 >"$name.tar.xz"
mib=$(($(wc -c <"$name.tar.xz") / 1048576 + 1))
[ "$mib" -le $MOST_MIB ] || die "the archive has $mib MiB, more than $MOST_MIB"
echo "$folder/$name.tar.xz: $mib MiB, $(du -sm "$name" | cut -f 1) MiB unpacked; needs glibc $glibc"
