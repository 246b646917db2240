#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Vulkan drivers to test with besides the installed one: packages of Debian, unpacked under a folder
# and not installed; nothing outside that folder changes, and no rights are needed. Called by forge.
#
#   drivers.sh fetch FOLDER NAME   unpacks the driver NAME into FOLDER/NAME, unless it is there
#   drivers.sh names               the names, each with what it is
#   drivers.sh gpus                the GPUs of gpu-compilers
#
# FOLDER/NAME/run PROGRAM ARGUMENTS... then runs a program on that driver and on no other.
# FOLDER/gpu-compilers/run-gpu GPU PROGRAM ARGUMENTS... runs it on the driver of a GPU that need not be
# there: pipelines are compiled, and nothing that is submitted runs.
set -eu

names() {
    cat <<'END'
swiftshader         SwiftShader, the poorest device allowed (chromium-common)
lavapipe-backports  lavapipe and RADV of this Debian's backports, on this machine's own libraries
lavapipe-sid        lavapipe of Debian sid, with sid's C library, Vulkan loader and validation layer
gpu-compilers       Mesa's compilers for Intel, NVIDIA (NVK) and Adreno: those of trixie-backports
gpu-compilers-sid   the same of sid, which know newer GPUs
END
}

# GPU, driver, and what tells the stub of its kernel driver which GPU it is.
gpus() {
    cat <<'END'
skl    intel      INTEL_STUB_DEVICE=1912
tgl    intel      INTEL_STUB_DEVICE=9a49
dg2    intel      INTEL_STUB_DEVICE=5690
lnl    intel      INTEL_STUB_DEVICE=64a0
bmg    intel      INTEL_STUB_DEVICE=e20b
ptl    intel      INTEL_STUB_DEVICE=b080
tu102  nouveau    NOUVEAU_CHIPSET=162
ga102  nouveau    NOUVEAU_CHIPSET=172
gh100  nouveau    NOUVEAU_CHIPSET=180
ad102  nouveau    NOUVEAU_CHIPSET=192
gb202  nouveau    NOUVEAU_CHIPSET=1b2
a660   freedreno  FD_GPU_ID=660
a750   freedreno  FD_GPU_ID=750
a830   freedreno  FD_GPU_ID=830
END
}
die() {
    printf 'drivers.sh: %s\n' "$*" >&2
    exit 1
}
within() { timeout -k 5 "$@"; } # within SECONDS COMMAND...

# ---- a package manager of our own ----------------------------------------------------------------

# Lists, caches and sources live in $home; of the machine's settings only those that say how to reach
# the archive are taken over.
write_settings() { # write_settings STATUS_FILE
    mkdir -p "$home/state/lists/partial" "$home/cache/archives/partial"
    {
        apt-config dump | grep -E '^Acquire::(https?|ftp|Check-|ForceIPv|Retries|Proxy)' || true
        cat <<END
Dir::Etc::parts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::Etc::sourcelist "$home/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$home/state";
Dir::State::status "$1";
Dir::Cache "$home/cache";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
END
    } >"$home/apt.conf"
}

# The archive that this machine uses, then everybody's.
mirrors() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        awk -v codename="$codename" '$2 == codename && $3 == "Debian" { print $1; exit }'
    echo http://deb.debian.org/debian
}

write_sources() { # write_sources MIRROR SUITES
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    signed=
    [ -r $key ] && signed="[signed-by=$key] "
    for suite in $2; do
        echo "deb $signed$1 $suite main"
    done >"$home/sources.list"
}

apt() {
    tool=$1
    shift
    APT_CONFIG="$home/apt.conf" within 180 "$tool" "$@"
}

have_lists() { # have_lists SUITES
    for mirror in $(mirrors); do
        write_sources "$mirror" "$1"
        apt apt-get update --error-on=any && return 0
    done
    return 1
}

update() { # update SUITES
    have_lists "$1" || die "the package lists of $1 could not be fetched"
}

# "name=version" of everything that installing these would bring.
closure() {
    apt apt-get -s install "$@" | awk '$1 == "Inst" {
        version = $3 ~ /^\[/ ? $4 : $3
        sub(/^\(/, "", version)
        print $2 "=" version
    }'
}

unpack() { # unpack PACKAGES: into $new/root
    mkdir -p "$new/deb" "$new/root"
    # shellcheck disable=SC2086
    (cd "$new/deb" && apt apt-get download $1)
    for deb in "$new"/deb/*.deb; do
        dpkg -x "$deb" "$new/root"
    done
    rm -rf "$new/deb"
}

# ---- what runs a program on a driver ---------------------------------------------------------------

triplet() { dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch; }

# write_icd NAME LIBRARY: $new/NAME.json, for a library somewhere under the root
write_icd() {
    library=$(cd "$new/root" && find . -name "$2" | head -n 1)
    [ -n "$library" ] || die "the packages of $driver hold no $2"
    cat >"$new/$1.json" <<END
{"file_format_version": "1.0.0",
 "ICD": {"library_path": "./root/${library#./}", "api_version": "1.3.0"}}
END
}

# write_run FILE ICD LINES: LINES set up the rest and end in the command to run "$@" with
write_run() {
    cat >"$new/$1" <<END
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
export VK_DRIVER_FILES="\$here/$2.json"
export VK_ICD_FILENAMES="\$VK_DRIVER_FILES" # loaders before 1.3.207
export VK_LOADER_LAYERS_DISABLE=~implicit~
$3
END
    chmod +x "$new/$1"
}

fetch_swiftshader() {
    write_settings /dev/null
    update "$codename"
    unpack chromium-common
    find "$new/root" -type f ! -name libvk_swiftshader.so -delete
    write_icd driver libvk_swiftshader.so
    write_run run driver 'exec "$@"'
}

fetch_lavapipe_backports() {
    write_settings /var/lib/dpkg/status
    update "$codename $codename-backports"
    packages=$(closure -t "$codename-backports" mesa-vulkan-drivers)
    case $packages in
    *mesa-vulkan-drivers=*) ;;
    *) die "$codename-backports has no newer Mesa than the one that is installed" ;;
    esac
    unpack "$packages"
    write_icd driver libvulkan_lvp.so
    write_icd radeon libvulkan_radeon.so
    libraries="export LD_LIBRARY_PATH=\"\$here/root/usr/lib/$(triplet)\""
    write_run run driver "$libraries
exec \"\$@\""
    write_run run-radv radeon "$libraries
exec \"\$@\""
}

# Everything from the C library on is sid's; what the programs need besides is this machine's.
fetch_lavapipe_sid() {
    : >"$home/status"
    write_settings "$home/status"
    update sid
    unpack "$(closure mesa-vulkan-drivers libvulkan1 vulkan-validationlayers libstdc++6)"
    write_icd driver libvulkan_lvp.so
    write_run run driver "export VK_LAYER_PATH=\"\$here/root/usr/share/vulkan/explicit_layer.d\"
lib=lib/$(triplet)
exec \"\$here\"/root/usr/\$lib/ld-linux-* --library-path \"\$here/root/usr/\$lib:/usr/\$lib:/\$lib\" \"\$@\""
}

# Three drivers with the C library and all else that they load; none of them needs LLVM. Debian packages the
# stubs of the kernel drivers for NVIDIA and Adreno; for Intel there is one in tests/kernels.
GPU_PACKAGES="mesa-vulkan-drivers mesa-drm-shim libvulkan1 libstdc++6 libdrm-dev"
BACKPORTS="trixie trixie-backports"
fetch_gpu_compilers() { fetch_gpu_compilers_of "$BACKPORTS" sid; } # backports change less often
fetch_gpu_compilers_sid() { fetch_gpu_compilers_of sid "$BACKPORTS"; }
fetch_gpu_compilers_of() { # fetch_gpu_compilers_of SUITES OTHER_SUITES: where the first lacks them
    : >"$home/status"
    write_settings "$home/status"
    packages=
    for suites in "$1" "$2"; do
        have_lists "$suites" || continue
        # shellcheck disable=SC2086
        packages=$(closure -t "${suites##* }" $GPU_PACKAGES |
            awk '!/^(libllvm|libclang|libz3|linux-libc)/ && (!/-dev=/ || /^libdrm-dev=/)')
        case $packages in *mesa-drm-shim=*) break ;; esac
    done
    [ -n "$packages" ] || die "neither trixie-backports nor sid has $GPU_PACKAGES"
    unpack "$packages"
    find "$new/root" -name 'libvulkan_*.so' ! -name '*_intel.so' ! -name '*_nouveau.so' \
        ! -name '*_freedreno.so' -delete
    # Of the headers those of the kernel drivers, as the C library's are another version than this machine's.
    mkdir "$new/include"
    mv "$new/root/usr/include/xf86drm.h" "$new"/root/usr/include/libdrm/*.h "$new/include"
    rm -rf "$new/root/usr/share" "$new/root/usr/include"
    for kind in intel nouveau freedreno; do
        write_icd $kind libvulkan_$kind.so
    done
}

# What this project adds to the packages: made each time, for it may have changed since they were fetched.
write_gpu_runner() {
    new=$folder/$driver lib=lib/$(triplet)
    cc -O2 -fPIC -shared -I"$new/include" -o "$new/libintel_stub.so.$$" \
        "$here/../tests/kernels/intel_stub.c" -ldl
    mv "$new/libintel_stub.so.$$" "$new/libintel_stub.so"
    gpus >"$new/gpus"
    cat >"$new/run-gpu.$$" <<END
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
line=\$(awk -v gpu="\${1:-}" '\$1 == gpu { print \$2, \$3 }' "\$here/gpus")
[ -n "\$line" ] || {
    echo "run-gpu: there is no GPU \"\${1:-}\"; see \$here/gpus" >&2
    exit 2
}
shift
kind=\${line% *}
export "\${line#* }"
export VK_DRIVER_FILES="\$here/\$kind.json" VK_LOADER_LAYERS_DISABLE=~implicit~
export NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1 # GPUs that NVK does not yet know well
export MESA_SHADER_CACHE_DISABLE=true
lib=\$here/root/usr/$lib
stub=\$lib/lib\${kind}_noop_drm_shim.so
[ "\$kind" != intel ] || stub=\$here/libintel_stub.so
exec "\$lib"/ld-linux-* --library-path "\$lib:/usr/$lib:/$lib" --preload "\$stub" "\$@"
END
    chmod +x "$new/run-gpu.$$"
    mv "$new/run-gpu.$$" "$new/run-gpu"
}

fetch() {
    driver=$1
    names | grep -q "^$driver " || die "there is no driver \"$driver\""
    [ -d "$folder/$driver" ] || fetch_packages
    case $driver in gpu-compilers*) write_gpu_runner ;; esac
}

fetch_packages() {
    for tool in apt-get dpkg timeout; do
        command -v $tool >/dev/null || die "$tool is missing: drivers are fetched on Debian only"
    done
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    new=$folder/$driver.new home=$folder/$driver.apt
    rm -rf "$new" "$home" "${folder:?}/$driver"
    mkdir -p "$new" "$home"
    "fetch_$(echo "$driver" | tr - _)"
    rm -rf "$home"
    mv "$new" "$folder/$driver"
}

here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
names) names ;;
gpus) gpus ;;
fetch)
    [ $# = 3 ] || die "use: drivers.sh fetch FOLDER NAME"
    mkdir -p "$2"
    folder=$(cd "$2" && pwd)
    fetch "$3"
    ;;
*) die "use: drivers.sh fetch FOLDER NAME, drivers.sh names, or drivers.sh gpus" ;;
esac
