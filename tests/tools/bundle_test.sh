#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The archive of ./forge bundle as a user meets it: in a bare Debian with nothing but a Vulkan driver, without a
# network, root or Python, of this Debian's version and a newer one. Run by forge. 77: such systems cannot
# be made here.
#
#   bundle_test.sh ARCHIVE FOLDER [SUITE...]       (bookworm trixie); FOLDER/root-SUITE is kept and used again
set -eu

archive=$(readlink -f "$1") folder=$2
shift 2
[ $# -gt 0 ] || set -- bookworm trixie
fail() {
    echo "$1"
    exit 1
}
not_run() {
    echo "not run: $1"
    exit 77
}

[ "$(id -u)" = 0 ] || not_run "only root can make a system of its own"
for tool in debootstrap unshare chroot ip cmake; do
    command -v $tool >/dev/null || not_run "$tool is not installed"
done
unshare -mnpf true 2>/dev/null || not_run "namespaces cannot be made here"

# The archive that this machine uses, then everybody's.
mirror() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        awk '$2 == "Debian" { print $1; exit }' | grep . || echo http://deb.debian.org/debian
}

# system SUITE: a bare one with lavapipe. The Vulkan loader and Python, which come with that, are taken away.
system() {
    root=$folder/root-$1
    [ -d "$root" ] && return 0
    rm -rf "$root.new"
    debootstrap --variant=minbase --include=mesa-vulkan-drivers "$1" "$root.new" "$(mirror)" \
        >"$folder/debootstrap-$1.log" 2>&1 || not_run "debootstrap of $1 failed: $(tail -n 1 "$folder/debootstrap-$1.log")"
    rm -f "$root.new"/usr/lib/*/libvulkan.so.1* "$root.new"/usr/bin/python3* "$root.new"/var/cache/apt/archives/*.deb
    mv "$root.new" "$root"
}

# inside COMMAND: in the system as nobody, in the unpacked folder
inside() {
    # shellcheck disable=SC2016
    timeout -k 5 "${seconds:-120}" unshare -mnpf sh -c '
        ip link set lo up
        mount -t proc proc "$1/proc" && mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" &&
            exec env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/tmp/home LP_NUM_THREADS=2 \
                chroot --userspec=65534:65534 "$1" sh -c "$2"' sh "$root" "cd /tmp/ringforge-* && $1"
}
unpack() {
    rm -rf "$root"/tmp/*
    mkdir "$root/tmp/home"
    chown 65534:65534 "$root/tmp/home"
    xz -dc "$archive" | chroot --userspec=65534:65534 "$root" sh -c 'cd /tmp && tar xf -' || fail "$suite: it does not unpack"
}
valid_json() {
    printf 'file(READ "%s" text)\nstring(JSON kind TYPE "${text}")\n' "$1" >"$folder/json.cmake"
    cmake -P "$folder/json.cmake" 2>"$folder/json.log" || fail "$suite: $1 is not JSON: $(cat "$folder/json.log")"
}
said() { # said WHAT NAME: WHAT is in the output of NAME
    grep -q -- "$1" "$folder/$2.out" || {
        tail -n 5 "$folder/$2.out"
        fail "$suite: $2 does not say \"$1\""
    }
}
runs() { # runs NAME COMMAND
    inside "$2" >"$folder/$1.out" 2>&1 || {
        tail -n 5 "$folder/$1.out"
        fail "$suite: $1 failed"
    }
}

programs_run() {
    runs libraries 'for f in bin/ringforge bin/yardstick tests/*_test; do ldd $f; done'
    ! grep -q 'not found' "$folder/libraries.out" || fail "$suite: $(grep -m 1 'not found' "$folder/libraries.out")"
    runs info './ringforge info'
    said llvmpipe info
    runs train './ringforge train --ranks 2 --data lib/text.txt --layers 1 --channels 32 --heads 2 --seq 16 --batch 4 --steps 3'
    said 'params_sha256\|SHA-256\|loss' train
    runs bench './ringforge bench layernorm --shape 16x64 -n 1'
    runs all_reduce './ringforge bench all_reduce --ranks 2 -b 1K -e 1K -n 2'
    runs linked 'ln -s $PWD/ringforge /tmp/home/rf && cd / && /tmp/home/rf --version'
    said '^ringforge [0-9]' linked
    runs device_test 'cd tests && ./device_test --gtest_filter=DeviceOpen.*:DeviceStream.*'
    runs reference_data 'cd tests && ./ops_optimizer_test --gtest_filter=*PyTorch'
    said 'PASSED' reference_data
}

an_old_system_is_told() {
    # shellcheck disable=SC2016
    inside 'mkdir -p /tmp/old && printf "#!/bin/sh\necho glibc 2.17\n" >/tmp/old/getconf && chmod +x /tmp/old/getconf &&
        PATH=/tmp/old:$PATH ./ringforge info' >"$folder/old.out" 2>&1 && fail "$suite: it runs on glibc 2.17"
    said 'needs glibc 2\.[0-9]* or newer.*this system has 2.17' old
}

# In time, with every section, however far each came.
day() { # day NAME: gpu-day.sh for two minutes
    day_start=$(date +%s)
    seconds=180 inside "./gpu-day.sh --minutes 2 --out /tmp/$1" >"$folder/$1.out" 2>&1 || true
    day_seconds=$(($(date +%s) - day_start))
    [ $day_seconds -le 150 ] || fail "$suite: $1 took $day_seconds s of 120"
    valid_json "$root/tmp/$1/report.json"
    for section in device torch tests tune matmul step kernels; do
        grep -q "{\"name\": \"$section\"" "$root/tmp/$1/report.json" || fail "$suite: $1 has no section $section"
    done
    grep -q '"failed_tests": \[\]' "$root/tmp/$1/report.json" || fail "$suite: $(grep '"failed_tests"' "$root/tmp/$1/report.json")"
    said '^device: llvmpipe' "$1"
    said '^PyTorch.*not run' "$1"
}
a_hang_loses_no_section() {
    runs hang 'mv bin/ringforge bin/real && printf "#!/bin/sh\ncase \$1 in tune) exec sleep 1000 ;; esac\nexec \${0%%/*}/real \"\$@\"\n" \
        >bin/ringforge && chmod +x bin/ringforge'
    day hanging
    said 'by path and tile .*out of time' hanging
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
for suite in "$@"; do
    system "$suite"
    unpack
    programs_run
done
suite=$1 root=$folder/root-$1
unpack
an_old_system_is_told
day day
a_hang_loses_no_section
echo "$*: unpacked without a network, root or Python, it runs; a report in time, also when a program hangs"
