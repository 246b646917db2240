#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The stages of `./forge test`, which reads this file: the command and the driver of each, and the
# summary at the end. A stage that cannot run, or is left out, says so and never counts as passed.
# stages_always and stages_all, at the end, are the two lists.

summary=
failures=0
left_out=
run_with= # variables of the programs that run_parts runs: NAME=VALUE ...
# stage NAME COMMAND...: runs it, remembers how it went.
stage() {
    s_name=$1
    is_wanted "$s_name" || return 0
    shift
    s_start=$(now)
    s_note=
    s_status=0
    "$@" || s_status=$?
    case $s_status in
    0) s_word=PASS ;;
    77) s_word="NOT RUN" ;;
    *)
        s_word=FAIL
        failures=$((failures + 1))
        ;;
    esac
    stage_line $(($(now) - s_start))
}
# is_wanted STAGE: whether it is run: all are, or the one that was named and what it needs
is_wanted() {
    case $1/ in
    build/ | "$only"/*) return 0 ;;
    esac
    [ -z "$only" ]
}
# stage_names: prints the names of all stages, as they are written below
stage_names() {
    sed -n 's/^ *\(\[.*|| \)*\(stage\|if_time [0-9]*\) \([a-z][^ "$]*\).*/\3/p' ci/stages.sh | sed 's,/$,,'
}
# stage_line SECONDS: prints how a stage went, and keeps it for the summary
stage_line() {
    s_line=$(printf '%-22s %-8s %4s s  %s' "$s_name" "$s_word" "$1" "$s_note")
    say "$s_line"
    summary="$summary$s_line
"
}
# if_time SECONDS NAME COMMAND...: a stage that takes about so long; left out if it would not end in time.
if_time() {
    is_wanted "$2" || return 0
    s_left=$((deadline - $(now)))
    if [ "$deadline" != 0 ] && [ $s_left -lt "$1" ]; then
        s_name=$2 s_word="LEFT OUT" s_note="takes about $1 s; $((s_left > 0 ? s_left : 0)) s are left"
        left_out="$left_out $2"
        stage_line 0
        return 0
    fi
    shift
    stage "$@"
}

# ctest_parts LOG DIR PARTS [CTEST OPTIONS]: the tests of these folders, one after the other.
ctest_parts() {
    p_log=$1 p_dir=$2 p_parts=$3 p_status=0
    shift 3
    : >"$p_log.all"
    for part in $p_parts; do
        quietly "$p_log" "$s_name: $part" ctest --test-dir "$p_dir/tests/$part" \
            --output-on-failure --no-tests=error -j "$(test_jobs)" "$@" || p_status=1
        cat "$p_log" >>"$p_log.all"
    done
    mv "$p_log.all" "$p_log"
    sed -n '/(Skipped)/d; s/^[ \t]*\([0-9]* - .*([A-Za-z ]*).*\)/failed: \1/p' "$p_log"
    s_note="$(grep -cE 'Test +#[0-9]+: .* Passed' "$p_log" || true) tests passed"
    [ $p_status = 0 ] || s_note="$s_note; see $p_log"
    return $p_status
}
test_jobs() {
    jobs=$(cores)
    [ "$jobs" -gt 8 ] && jobs=8
    echo "$jobs"
}
GPU_PARTS="device ops train"
# The longest come first, so that they do not run alone at the end.
ALL_PARTS="ops train coll device tokenizer base tools comm rounds store federated transport"
# The tests of these, and of some more programs, wait for processes more than they compute, and run beside the others.
WAITING_PARTS="tools comm store transport"
WAITING_PROGRAM='/train_\(cube\|death\|disagree\|fault\|flush\)_test$'

# For kernels that take long to compile the whole suite tests f32 and one 16-bit type; the other type is only compared
# with the reference, unless other tests would find the same faults. The types differ in how values are read and
# written, which kernels share. `./forge test --all` has all tests of both.
OTHER_TYPES='Type/Attention*/bf16:Type/Rotary*/bf16:Type/Activation.Small*/f16:Type/Glu.Ten*/f16'
OTHER_TYPES="$OTHER_TYPES:Type/LmHead.Ten*/f16:Type/LmHead.What*/f16:*/NormOfF32*/bf16"
OTHER_TYPES="$OTHER_TYPES:Teams/RmsNorm*/f16:Type/RmsNorm.Ten*/f16:Teams/Softmax.Ten*/bf16"
test_other_types() {
    export GTEST_FILTER="$OTHER_TYPES"
    o_status=0
    run_parts env ops || o_status=$?
    unset GTEST_FILTER
    return $o_status
}

allocator() { ls /usr/lib/*/libjemalloc.so.2 2>/dev/null | head -n 1; }

# The whole suite, on the default driver: each test program in a few parts, and beside them the checks that are not
# test programs.
test_suite() {
    lavapipe_untested='' t_status=0
    export GTEST_FILTER="-$OTHER_TYPES"
    # Half of the time is LLVM's, which translates kernels for lavapipe. It takes two thirds of that if it does not
    # optimise what will run for a moment, and has an allocator for many small pieces. Newer lavapipes, which
    # `./forge test --all` runs, optimise.
    run_with="GALLIVM_PERF=nopt LD_PRELOAD=$(allocator)"
    RUN_TESTS_BESIDE="ctest --test-dir $BUILD --output-on-failure -L script"
    export RUN_TESTS_BESIDE
    run_parts env "$ALL_PARTS" || t_status=1
    unset RUN_TESTS_BESIDE GTEST_FILTER
    run_with=
    sed -n '/The following tests FAILED/,$p' "$r_log.beside"
    t_name=$(driver_name env)
    s_note="$s_note; scripts: $(grep -E 'tests passed' "$r_log.beside" | tail -n 1); $t_name"
    case $t_name in
    llvmpipe*) [ $t_status != 0 ] || passed_on lavapipe ;;
    *) lavapipe_untested=yes ;;
    esac
    return $t_status
}

# test_named NAME...: the tests that have one of these in their names, of all programs and scripts. A name may have
# * and ?, as GoogleTest's filters do.
test_named() {
    n_filter='' n_scripts='' n_count=0 n_status=0
    for name in "$@"; do
        case $name in
        *[*?]*) n_filter="$n_filter$name:" ;;
        *) n_filter="$n_filter*$name*:" ;;
        esac
        n_scripts="$n_scripts${n_scripts:+|}$(printf '%s' "$name" | sed 's/[*]/.*/g')"
    done
    n_ifs=$IFS n_programs=$(test_programs "$ALL_PARTS")
    IFS='
'
    for program in $n_programs; do
        "$program" --gtest_list_tests --gtest_filter="$n_filter" | grep -q '^  ' || continue
        n_count=$((n_count + 1))
        "$program" --gtest_filter="$n_filter" || n_status=1
    done
    IFS=$n_ifs
    if ctest --test-dir $BUILD -N -L script -R "$n_scripts" | grep -q 'Test *#'; then
        n_count=$((n_count + 1))
        ctest --test-dir $BUILD --output-on-failure -L script -R "$n_scripts" || n_status=1
    fi
    [ $n_count -gt 0 ] || die "no test has $* in its name; ctest --test-dir $BUILD -N lists all. Stages: $(stage_names | sort -u | tr '\n' ' ')"
    [ $n_status = 0 ] || die "a test failed"
}

# ---- drivers: unpacked by ci/drivers.sh under $BUILD/drivers, see there ------------------------------

DRIVERS=$BUILD/drivers
ran= # the drivers that passed a stage
passed_on() {
    case "$ran " in *" $1 "*) ;; *) ran="$ran $1" ;; esac
}

# driver_name COMMAND...: the driver's own name, as reported by the program
driver_name() {
    "$@" $BUILD/ringforge info 2>&1 | sed -n 's/^ *driver: \(.*\); Vulkan.*/\1/p' | head -n 1
}

# packages: a word for the installed ones, if a package manager can list them
packages() {
    if command -v dpkg-query >/dev/null; then dpkg-query -W | sha256sum | cut -c 1-20; fi
}

# test_programs PARTS: the test programs of these folders
test_programs() {
    for part in $1; do
        sed -n 's/^include("\(.*\)\[1\]_include.cmake")$/\1/p' $BUILD/tests/"$part"/CTestTestfile.cmake
    done
}

# run_parts RUN PARTS: all tests of these folders, several programs at a time, each run with RUN. 77: none
# failed, but there was no time for all. On CPU drivers a process spends most of its time on translating
# kernels, which is kept within a process only: so few processes have many tests each.
run_parts() {
    r_log=$BUILD/test-$(echo "$s_name" | tr / -).log r_status=0 r_ifs=$IFS r_waiting='' r_computing=''
    for part in $2; do
        case " $WAITING_PARTS " in
        *" $part "*) r_waiting="$r_waiting $part" ;;
        *) r_computing="$r_computing $part" ;;
        esac
    done
    r_computing=$(test_programs "$r_computing") r_waiting=$(test_programs "$r_waiting")
    r_waiting="$r_waiting
$(echo "$r_computing" | grep "$WAITING_PROGRAM" || true)"
    r_computing=$(echo "$r_computing" | grep -v "$WAITING_PROGRAM" || true)
    IFS='
'
    # shellcheck disable=SC2086
    set -- "$1" $r_computing --waiting $r_waiting
    IFS=$r_ifs
    quietly "$r_log.summary" "$s_name" env RUN_TESTS_ON="$(driver_name "$1") $(packages)" \
        RUN_TESTS_SHARDS="$(test_jobs)" $run_with ci/run_tests.sh "$r_log" "$(test_jobs)" 2400 "$@" || r_status=$?
    sed -n '/^failed: /p; /^PROGRAM ENDED/p' "$r_log.summary"
    s_note="$(tail -n 1 "$r_log.summary")"
    [ $r_status = 0 ] || s_note="$s_note: $(failed_tests "$r_log.summary"); see $r_log"
    r_late=$(grep -c '^OUT OF TIME' "$r_log.summary" || true)
    [ "$r_late" = 0 ] || {
        s_note="$s_note; $r_late parts had no time to end"
        [ $r_status != 0 ] || r_status=77
    }
    return $r_status
}

# failed_tests SUMMARY: the first of them, for the line of the stage, which is all that some logs keep
failed_tests() {
    sed -n 's/^failed: //p; s/^PROGRAM ENDED: //p' "$1" | head -n 3 | paste -s -d ' '
}

# fetch_driver NAME: unpacks it, unless it is there. The log says why it could not be had.
fetch_driver() {
    if [ -n "$offline" ] && [ ! -d $DRIVERS/"$1" ]; then
        s_note="not fetched: --offline"
    else
        quietly $BUILD/fetch-"$1".log "$s_name: fetch" timeout -k 5 600 \
            ci/drivers.sh fetch $DRIVERS "$1" && return 0
        s_note="could not be fetched: see $BUILD/fetch-$1.log"
    fi
    return 1
}

# Compiling is most of what kernel tests take on CPU drivers, and SwiftShader keeps nothing of it from
# process to process. All forms and types run on the installed driver; these are left out on others, where
# one of each kind has to do.
SLOW_FORMS=':All/MatmulTypes.*f32*:All/MatmulTypes.*tiled*:All/MatmulLayout.*16*:Type/LmHead.*16:Teams/*/f16'
SLOW_TYPES="$SLOW_FORMS:Type/Attention.ForwardAndBackward*16"
# Other subgroup sizes only have to show that no kernel assumes one.
SLOW_WIDTHS="$SLOW_TYPES:All/Matmul*:MatmulBatch.*:Type/LmHead*:Type/Attention.*16"
SLOW_WIDTHS="$SLOW_WIDTHS:Type/Attention.ForwardAndBackward*:Type/Attention.Strides*"
SLOW_WIDTHS="$SLOW_WIDTHS:*HeadSizesFrom64*:*HeadSizesFrom96*"
# Training tests to skip; the rest covers possible faults of a driver: losses, gradients, memory.
SLOW_TRAINING=':Spill.*:Zero.*:Recompute.*:Offload.*:Fit.*:BackgroundSave.*:SharedSave.*:Pieces.*:RingOrder.*'
SLOW_TRAINING="$SLOW_TRAINING:ChunkedHead.*:Bytes.*:Controls.*:Checkpoint.*:Optimizers.*:Run.Memory*:Run.Evaluation*"
SLOW_TRAINING="$SLOW_TRAINING:UpdateOnRank0.*:Fault.*:*Killed.*:Stopped.*:Disagree.*:Run.EveryRankHears*"
SLOW_TRAINING="$SLOW_TRAINING:Run.AStepWithout*:Run.ATokenThat*:Run.ADeath*:Run.AGradient*:Replay.*:TreeOrder.*"
SLOW_TRAINING="$SLOW_TRAINING:Gradients.*:MixedGpt.Tree*:MixedGpt.Losses*:MixedGpt.Bytes*:MixedGpt.A*:MixedGpt.E*"
SLOW_TRAINING="$SLOW_TRAINING:MixedGpt.GradientsAre*:Llama.P*:Llama.By*:Llama.Losses*:Run.TokensOutside*"
SLOW_TRAINING="$SLOW_TRAINING:ForwardOnly.*:OfSetting.*:All/OfSetting.*:Pairs.*:Layouts.*:DataCursor.*:MicroBatch.*"
SLOW_TRAINING="$SLOW_TRAINING:Precision.A*:Precision.F*:Precision.G*:Precision.O*:Precision.P*"
SLOW_TRAINING="$SLOW_TRAINING:Precision.S*:Precision.WithoutMastersTree*:TensorState.*:TensorCheckpoint.*:Audit.*"
SLOW_TRAINING="$SLOW_TRAINING:Restore.*:Resume.*:Frozen.C*:Frozen.I*:Frozen.N*:Frozen.P*:Frozen.R*:Frozen.S*"
SLOW_TRAINING="$SLOW_TRAINING:Frozen.T*:Frozen.GradientsI*"
# One way to divide a model is enough here: a layer of tensor ranks.
SLOW_TRAINING="$SLOW_TRAINING:DataParallel.*:Stages.*:Meshes.*:Context.*:Lag.*:TensorParts.*"
SLOW_TRAINING="$SLOW_TRAINING:TensorLayer.A*:TensorLayer.E*:TensorLayer.I*:TensorLayer.K*:TensorLayer.W*"
SLOW_TRAINING="$SLOW_TRAINING:TensorLayer.The*:TensorLayer.OfAL*:Model/Packed.A*:Model/Packed.S*:Model/Packed.T*"
SLOW_TRAINING="$SLOW_TRAINING:Model/Packed.W*:Model/Packed.*/Llama"
SLOW_TRAINING="$SLOW_TRAINING:Disk.*:InBackward.H*:InBackward.G*:InBackward.N*:Recipe.E*:Recipe.F*:Recipe.T*"
# Adapters and models of hubs: one beside PEFT, and those beside transformers, stay.
SLOW_TRAINING="$SLOW_TRAINING:Adapter.*:Raw.*:Hub.*:Quantized.P*:Quantized.T*"
SLOW_TRAINING="$SLOW_TRAINING:AdapterPeft.LossesOfL*:AdapterPeft.LossesOfQ*:AdapterPeft.LossesW*"

# test_driver NAME PARTS [LEFT OUT]
test_driver() {
    fetch_driver "$1" || return 77
    d_run=$PWD/$DRIVERS/$1/run
    d_name=$(driver_name "$d_run")
    [ -n "$d_name" ] || {
        s_note="the driver does not start: $d_run $BUILD/ringforge info"
        return 1
    }
    d_status=0
    # Overlap is about which rank waits for which: nothing in it is of the driver.
    # Where nothing compiled is kept, ranks take long to come as far as their first step.
    # Which ranges a launcher declares is of no driver either.
    export GTEST_FILTER="-Overlap.*:Of/Ranges.*${3:-}" RF_TEST_PATIENCE=5
    run_parts "$d_run" "$2" || d_status=$?
    unset GTEST_FILTER RF_TEST_PATIENCE
    s_note="$s_note; $d_name"
    [ $d_status != 0 ] || passed_on "$1"
    return $d_status
}

# Ranks on different drivers in one job.
test_mixed() {
    fetch_driver swiftshader || return 77
    quietly $BUILD/mixed.log "$s_name" tests/tools/mixed_drivers_test.sh $BUILD/ringforge \
        "$PWD/$DRIVERS/swiftshader/run" $BUILD/mixed && m_status=0 || m_status=1
    s_note=$(tail -n 1 $BUILD/mixed.log)
    return $m_status
}

# Ranks on several hosts, as network namespaces.
test_hosts() {
    quietly $BUILD/hosts.log "$s_name" timeout -k 5 600 tests/tools/hosts_test.sh $BUILD/ringforge \
        $BUILD/hosts && h_status=0 || h_status=$?
    s_note=$(tail -n 1 $BUILD/hosts.log)
    return $h_status
}

# The archive of ./forge bundle, in bare systems without a network: this Debian and a newer one.
test_bundle() {
    b_status=0
    (bundle) || return 1
    quietly $BUILD/bundle-test.log "$s_name" timeout -k 5 900 tests/tools/bundle_test.sh out/ringforge-*.tar.xz \
        "$PWD/$BUILD/bundle-test" || b_status=$?
    s_note=$(tail -n 1 $BUILD/bundle-test.log)
    return $b_status
}

# Jobs started by real launchers; torchrun if it is installed.
# test_launcher NAME
test_launcher() {
    quietly $BUILD/launch-"$1".log "$s_name" timeout -k 5 600 tests/tools/launchers_test.sh \
        $BUILD/ringforge $BUILD/launch-"$1" "$1" && l_status=0 || l_status=$?
    s_note=$(tail -n 1 $BUILD/launch-"$1".log)
    return $l_status
}

# Kernels must not assume a subgroup size: lavapipe has 4, 8 or 16 lanes, as it is told. Each width has
# its own cache: Mesa's files do not say for which width they are, and what was compiled for another
# one crashes.
# test_subgroups BITS NAME PARTS
test_subgroups() {
    g_cache=$MESA_SHADER_CACHE_DIR g_status=0
    export LP_NATIVE_VECTOR_WIDTH="$1" MESA_SHADER_CACHE_DIR="$g_cache-$1"
    mkdir -p "$MESA_SHADER_CACHE_DIR"
    shift
    test_driver "$@" || g_status=$?
    unset LP_NATIVE_VECTOR_WIDTH
    MESA_SHADER_CACHE_DIR=$g_cache
    return $g_status
}

# Every pipeline, compiled for GPUs that need not be there (tests/kernels/gpus.txt): as many at once as there
# are cores. Each GPU's result is a stage of its own, see compiled.
# test_compilers STAGE SECONDS: those of STAGE, which take about SECONDS each
test_compilers() {
    c_until=0 c_log=$BUILD/kernels-$1.log
    for c_driver in $(ci/kernel_table.sh $BUILD drivers "$1"); do
        fetch_driver "$c_driver" || true
    done
    c_gpus=$(ci/kernel_table.sh $BUILD gpus "$1")
    if [ "$deadline" != 0 ] && [ "$1" = all ]; then
        # Where time is short, other GPUs come first on another day.
        c_until=$((deadline - $2))
        c_gpus=$(echo "$c_gpus" | awk -v first="$(($(now) / 86400))" '
            { gpu[NR - 1] = $1 }
            END { for (i = 0; i < NR; i++) print gpu[(first * 2 + i) % NR] }')
    fi
    # shellcheck disable=SC2086
    quietly "$c_log" "$s_name" ci/kernel_table.sh $BUILD several "$1" "$(test_jobs)" $c_until $c_gpus
    s_note="$(grep -c ' pipelines, ' "$c_log" || true) GPUs; logs in $BUILD/kernels"
}

# compiled GPU: its result
compiled() {
    c_log=$BUILD/kernels/$1.log
    [ -f $BUILD/kernels/"$1".status ] || {
        s_note="no time was left"
        return 77
    }
    read -r c_status c_seconds <$BUILD/kernels/"$1".status
    grep '^FAILED' "$c_log" || true
    s_note="$(tail -n 1 "$c_log"); $c_seconds s"
    [ "$c_status" != 77 ] || s_note="its driver is not on this machine"
    return "$c_status"
}

# The installed driver, unless it is the default device already.
test_lavapipe() {
    icd=$(find /usr/share/vulkan/icd.d -name 'lvp_icd*.json' 2>/dev/null | head -n 1)
    [ -n "$icd" ] || {
        s_note="mesa-vulkan-drivers is not installed"
        return 77
    }
    VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd
    export VK_DRIVER_FILES VK_ICD_FILENAMES
    v_status=0
    run_parts env "$GPU_PARTS" || v_status=1
    unset VK_DRIVER_FILES VK_ICD_FILENAMES
    [ $v_status != 0 ] || passed_on lavapipe
    return $v_status
}

# Conditions for a run to count.
test_matrix() {
    s_note="passed on:$ran"
    lacking=
    case "$ran " in *" lavapipe "*) ;; *) lacking="the installed lavapipe" ;; esac
    case "$ran " in *" swiftshader "*) ;; *) lacking="${lacking:+$lacking, }SwiftShader" ;; esac
    case "$ran " in
    *" lavapipe-backports "* | *" lavapipe-sid "*) ;;
    *) lacking="${lacking:+$lacking, }a newer lavapipe" ;;
    esac
    [ -n "$lacking" ] || return 0
    s_note="$s_note; lacking: $lacking"
    [ -z "$offline$left_out" ] && [ "$deadline" = 0 ] || return 77
    return 1
}

# Under the Khronos layer with synchronization validation no message is allowed. DeviceCheck removes a
# barrier on purpose: there the layer is right to speak.
# The layer makes each call some times as long, so ranks are given longer to hear of a failure.
# run_validated RUN PARTS [LEFT OUT]
run_validated() {
    export RF_VALIDATION=1 RF_TEST_PATIENCE=5 GTEST_FILTER="-DeviceCheck*:Overlap.*:Of/Ranges.*${3:-}"
    v_status=0
    run_parts "$1" "$2" || v_status=$?
    unset RF_VALIDATION RF_TEST_PATIENCE GTEST_FILTER
    messages=$(grep -cE ' validation: |Validation Error|SYNC-HAZARD' "$r_log" || true)
    s_note="$s_note; $messages validation messages"
    [ "$messages" = 0 ] || v_status=1
    return $v_status
}

test_validation() {
    ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >/dev/null 2>&1 || {
        s_note="vulkan-validationlayers is not installed"
        return 77
    }
    run_validated env "$GPU_PARTS" "$SLOW_FORMS"
}

# The newest lavapipe runs cooperative matrices, and its own layer knows them.
test_newest() {
    test_driver lavapipe-sid device || return $?
    n_note=$s_note n_status=0
    run_validated "$PWD/$DRIVERS/lavapipe-sid/run" "device ops" "$SLOW_TYPES" || n_status=$?
    s_note="$n_note; under its layer $s_note"
    return $n_status
}

# test_sanitized SANITIZERS NAME PARTS [CTEST OPTIONS]
test_sanitized() {
    z_dir=$BUILD/$2 z_parts=$3
    build_sanitized "$1" || return 1
    shift 3
    z_targets=
    for part in $z_parts; do
        z_targets="$z_targets tests/$part/all"
    done
    # shellcheck disable=SC2086
    compile "$z_dir" $z_targets || return 1
    run_sanitized "$z_parts" "$@"
}
# test_sanitized_short SANITIZERS NAME PROGRAMS FILTER: these test programs (PART/PROGRAM), and of their tests
# those that GoogleTest's filter lets through.
test_sanitized_short() {
    z_dir=$BUILD/$2
    build_sanitized "$1" || return 1
    # shellcheck disable=SC2086
    compile "$z_dir" $(for program in $3; do echo "${program#*/}"; done) || return 1
    z_log=$BUILD/test-$2-short.log z_programs=
    for program in $3; do
        z_programs="$z_programs $PWD/$z_dir/tests/$program"
    done
    export RF_PROGRAMS=10 RF_TEST_PATIENCE=3 GTEST_FILTER="$4"
    z_status=0
    # shellcheck disable=SC2086
    quietly "$z_log.summary" "$s_name" env RUN_TESTS_ON="$(packages)" \
        ci/run_tests.sh "$z_log" "$(test_jobs)" 300 env $z_programs ||
        z_status=1
    unset RF_PROGRAMS RF_TEST_PATIENCE GTEST_FILTER
    sed -n '/^failed: /p; /^PROGRAM ENDED/p' "$z_log.summary"
    s_note=$(tail -n 1 "$z_log.summary")
    [ $z_status = 0 ] || s_note="$s_note; see $z_log"
    return $z_status
}
# -O1 compiles in less than half the time of -O2, and leaves assertions in; C++ is tests alone. One build has
# AddressSanitizer for the tests and for the fuzz targets, which only clang can make.
build_sanitized() {
    z_sanitizers=$1
    set -- -DRF_FUZZ=OFF
    case $z_sanitizers in
    address*)
        ! has_fuzzer || {
            z_sanitizers=fuzzer-no-link,$z_sanitizers
            set -- -DRF_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
        }
        ;;
    esac
    configure "$z_dir" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRF_SANITIZE="$z_sanitizers" \
        -DRF_SHADERS_FROM="$PWD/$BUILD" -DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 \
        -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -DRF_BUILD_EXAMPLES=OFF -DRF_BUILD_BENCH=OFF "$@"
}
has_fuzzer() {
    command -v clang >/dev/null && command -v clang++ >/dev/null &&
        echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
        clang -x c -fsanitize=fuzzer,address - -o $BUILD/has_fuzzer 2>/dev/null
}
run_sanitized() {
    z_parts=$1
    shift
    # Random programs of collectives: fewer, as all is slower, and ranks take longer to come.
    export RF_PROGRAMS=20 RF_TEST_PATIENCE=3
    z_status=0
    ctest_parts "$z_dir-test.log" "$z_dir" "$z_parts" "$@" || z_status=1
    unset RF_PROGRAMS RF_TEST_PATIENCE
    return $z_status
}

# Fuzzes the parsers of external input, with libFuzzer and the sanitizers, from the corpus of earlier runs.
# test_fuzz SECONDS: for each target
test_fuzz() {
    z_dir=$BUILD/address f_status=0
    has_fuzzer || {
        s_note="clang or its libFuzzer is not installed (Debian: clang, libclang-rt-dev)"
        return 77
    }
    build_sanitized address,undefined || return 1
    compile "$z_dir" fuzz_all || return 1
    quietly $BUILD/fuzz.log "$s_name" ci/run_fuzz.sh "$z_dir" "$(test_jobs)" "$1" || f_status=1
    s_note=$(tail -n 1 $BUILD/fuzz.log)
    [ $f_status = 0 ] || {
        sed '/: [0-9]* inputs$/d' $BUILD/fuzz.log
        s_note="targets that failed: $(sed -n 's/^FAILED: \([^,]*\),.*/\1/p' $BUILD/fuzz.log | tr '\n' ' ')"
    }
    return $f_status
}

test_layers() { ci/check_layers.sh && ci/check_text.sh && ci/check_cycles.sh $BUILD/library_objects.txt; }

# ---- stages and their order ------------------------------------------------------------------------------

# The stages of `./forge test`: everything on the installed driver, and a short form on others.
SHORT_ASAN="base/base_test transport/transport_frame_test transport/transport_tcp_test transport/transport_shm_test transport/transport_loopback_test coll/coll_test
comm/comm_messages_test train/train_files_test train/train_fault_test tokenizer/tokenizer_test"
# Without the training tests of hubs' models: it tests the readers of files.
SHORT_ASAN_TESTS="*-Ranks/*:*net*:*tcp*:*/ofi_shm*:HostSchedules*:*x4*:*x5*:Hub.*:*Request*:*Group*"
SHORT_TSAN="transport/transport_loopback_test comm/comm_messages_test"
SHORT_TSAN_TESTS="*Loopback*:*Request*:*Group*-*net*:*tcp*:*shm*"
stages_always() {
    rm -f $BUILD/kernels/*.status
    stage build compile $BUILD
    [ $failures = 0 ] || exit 1
    RUN_TESTS_TREE=$(find ./* -type f ! -path "./$BUILD/*" ! -path './out/*' -exec sha256sum {} + | sort |
        cat - $BUILD/ringforge | sha256sum)
    export RUN_TESTS_TREE
    stage layers test_layers
    stage tests test_suite
    [ -z "$lavapipe_untested" ] || stage lavapipe test_lavapipe
    stage hosts test_hosts
    for launcher in run torchrun openmpi mpich slurm; do
        stage launch/$launcher test_launcher $launcher
    done
    stage compile test_compilers test 0
    for gpu in $(ci/kernel_table.sh $BUILD gpus test); do
        stage compile/"$gpu" compiled "$gpu"
    done
    stage asan+ubsan/short test_sanitized_short address,undefined address "$SHORT_ASAN" "$SHORT_ASAN_TESTS"
    stage tsan/short test_sanitized_short thread tsan "$SHORT_TSAN" "$SHORT_TSAN_TESTS"
    stage fuzz/short test_fuzz 2
}

# The further stages of `./forge test --all`, each with its seconds on two cores. Machines differ: with
# --minutes tests on other drivers are stopped five minutes behind the time, and their stage is NOT RUN.
stages_all() {
    [ "$deadline" = 0 ] || export RUN_TESTS_UNTIL=$((deadline + 300))
    if_time 120 types test_other_types
    # SwiftShader takes minutes to compile a product that unpacks fp8.
    if_time 600 swiftshader test_driver swiftshader "$GPU_PARTS" \
        "$SLOW_FORMS$SLOW_TRAINING:Kind/Quantized*/fp8"
    if_time 30 two-drivers test_mixed
    if_time 800 lavapipe-backports test_driver lavapipe-backports "$GPU_PARTS" "$SLOW_TRAINING"
    if_time 650 validation test_validation
    # One of the schedules for 9 to 32 ranks (16) and one of libfabric's ways (net) are enough here: all run
    # without sanitizers.
    if_time 550 asan+ubsan test_sanitized address,undefined address "base tokenizer coll transport comm" \
        -E '^Ranks/.*/(9|1[0-57-9]|2[0-9]|3[0-2])( |$)|/(ofi_shm|tcp_ofi_rxm)_x'
    # TSan does not see what other processes do: only tests whose ranks are threads.
    # And not those that compute a lot, which take minutes there.
    if_time 300 tsan test_sanitized thread tsan "transport comm" -R oopback \
        -E 'In16BitMessages|SharedBuffers.AllReduces'
    if_time 380 lavapipe-sid test_newest
    if_time 100 lavapipe-backports/4 test_subgroups 128 lavapipe-backports ops "$SLOW_WIDTHS"
    if_time 240 lavapipe-backports/16 test_subgroups 512 lavapipe-backports ops "$SLOW_WIDTHS"
    if_time 80 fuzz test_fuzz 12
    [ -n "$offline" ] || if_time 600 bundle test_bundle
    stage drivers test_matrix
    rm -f $BUILD/kernels/*.status
    if_time 180 compile/more test_compilers all 170
    for gpu in $(ci/kernel_table.sh $BUILD gpus all); do
        stage compile/"$gpu" compiled "$gpu"
    done
}

# test_all [--all] [--again] [--minutes N] [--offline] [NAME...]
test_all() {
    offline='' all='' again='' deadline=0 only='' names='' lavapipe_untested=''
    while [ $# -gt 0 ]; do
        case $1 in
        --offline) offline=yes ;;
        --all) all=yes ;;
        --again) again=yes ;;
        --minutes)
            case ${2:-} in '' | *[!0-9]*) die "--minutes needs a whole number" ;; esac
            deadline=$(($(now) + 60 * $2))
            shift
            ;;
        -*) die "test takes --all, --again, --minutes N, --offline and names, not \"$1\"" ;;
        *) names="$names $1" ;;
        esac
        shift
    done
    # Each job is a core's; threads of the driver on others only wait for each other.
    export LP_NUM_THREADS="${LP_NUM_THREADS:-1}"
    export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1}"
    export LSAN_OPTIONS="${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}"
    export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
    export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1}"
    export HFI_NO_BACKTRACE=1 # libpsm2, which libfabric loads, writes files when a process is killed
    # Compiling takes lavapipe longer than running; the folder is kept from run to run.
    export MESA_SHADER_CACHE_DIR="${MESA_SHADER_CACHE_DIR:-$PWD/$BUILD/mesa-cache}"
    t_begin=$(now)
    [ -n "$again" ] || export RUN_TESTS_KEPT="$PWD/$BUILD/passed"
    prepare
    # In a subshell, as a missing tool ends it: the stages that need it then report that they did not run.
    ! is_debian12 || (PACKAGES=$TEST_PACKAGES && install_packages) || true
    configure $BUILD -DCMAKE_BUILD_TYPE=Release
    if [ -n "$names" ]; then
        for name in $names; do
            stage_names | grep -qxF -- "$name" && only=$name
        done
        if [ -z "$only" ]; then
            compile $BUILD || exit 1
            # shellcheck disable=SC2086
            test_named $names
            return
        fi
        [ "$names" = " $only" ] || die "name one stage, or tests"
        all=yes
    fi
    s_name=prepare s_word=PASS s_note="packages and configuration"
    stage_line $(($(now) - t_begin))
    stages_always
    [ -z "$all" ] || stages_all
    say ""
    say "== Summary (logs in $BUILD/)"
    printf '%s' "$summary"
    [ -z "$left_out" ] || say "left out for want of time:$left_out"
    say "$(($(now) - t_begin)) s in all"
    [ $failures = 0 ] || die "$failures stage(s) failed"
}
