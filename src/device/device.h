/* SPDX-License-Identifier: MIT
 *
 * Functions of the device for the layers above, beyond the public header: the kernel cache, and
 * hooks for tests.
 */
#ifndef RF_DEVICE_DEVICE_H
#define RF_DEVICE_DEVICE_H

#include <ringforge/device.h>
#include <stdio.h>

/* The device's kernel for this SPIR-V and these specialization constants. It is compiled on first
 * use, and kept until the device is closed. The key is desc->spirv (the pointer), specs, push_bytes
 * and subgroup_size. Thread-safe. */
RF_MUST_CHECK int rf_device_kernel(struct rf_device *device, const struct rf_kernel_desc *desc,
                                   struct rf_kernel **out);

/* ---- texel views (views.c) ------------------------------------------------------------------- */

/* A kernel whose SPIR-V declares SampledBuffer reads floats through uniform texel buffers: set 0,
 * bindings 0 .. RF_MAX_VIEWS-1. */
#define RF_MAX_VIEWS 6
/* Such a kernel writes storage buffers that it declares as bindings RF_MAX_VIEWS and after. */
#define RF_MAX_WRITTEN 3
struct rf_view {
    struct rf_buffer *buffer;
    uint64_t offset, bytes; /* the range that the kernel reads or writes */
    uint32_t components; /* floats of a texel: 1, 2 or 4; 0: written, as the next storage buffer */
};
/* Whether this device should run such kernels: they are faster on CPU drivers. */
bool rf_device_has_views(const struct rf_device *device);
/* The index of the texel at view->offset in the bound view. False: no such view, because it is not
 * on whole texels, or too long, or the device has none. */
bool rf_view_first(const struct rf_view *view, uint32_t *first);
/* The maximum size in bytes of a storage buffer that such a kernel may write. 0: it must not write
 * this one, because it is not aligned, or because the device does not use such kernels. */
uint64_t rf_view_writable(const struct rf_view *view);
/* rf_launch with views for the bindings from 0. The ranges must include all reads through views. */
RF_MUST_CHECK int rf_launch_views(struct rf_stream *stream, struct rf_kernel *kernel,
                                  struct rf_dispatch dispatch, const struct rf_view *views,
                                  uint32_t view_count);

/* ---- streams (submission.c) ------------------------------------------------------------------ */

/* Allocates memory for that many submissions in flight, each of which waits for points of at most
 * `waits` other streams and communicators. Up to that number, submitting allocates nothing on the
 * host. Waits for the stream's work. No effect if the stream has enough already. */
RF_MUST_CHECK int rf_stream_reserve(struct rf_stream *stream, int submissions, uint32_t waits);

/* Whether it is a counting device: rf_device_open_counting. */
bool rf_device_counts(const struct rf_device *device);

/* ---- recordings (record.c) ------------------------------------------------------------------- */

/* Whether RF_CHECK_RANGES is on. Then every command has finished when its call returns, streams
 * cannot be recorded, and no other code may access the device's memory during a launch. */
bool rf_device_checks_ranges(const struct rf_device *device);

/* Whether everything that the recording needs still exists. */
bool rf_recording_valid(const struct rf_recording *recording);
/* Whether two recordings have the same commands with the same arguments. If not, `why` tells the
 * difference. */
bool rf_recording_same(const struct rf_recording *a, const struct rf_recording *b, char *why,
                       size_t size);
/* The number of command buffers that the stream has begun to record; replays begin none. */
uint64_t rf_stream_recorded(const struct rf_stream *stream);

/* ---- the driver's compiler (statistics.c) ---------------------------------------------------- */

#define RF_MAX_STATISTICS 64
struct rf_kernel_statistic {
    char name[64]; /* the driver's name for it, such as "VGPRs"; the first is "Subgroup size" */
    double value;
};
/* Fills up to `capacity` figures and returns how many; 0 unless the device was opened with
 * opts.kernel_statistics and its driver has VK_KHR_pipeline_executable_properties. */
uint32_t rf_kernel_statistics(const struct rf_kernel *kernel, struct rf_kernel_statistic *out,
                              uint32_t capacity);

/* The figures that drivers report under different names; -1: not reported. Registers, instructions
 * and occupancy are in the units of the driver, and not comparable between drivers. */
struct rf_kernel_figures {
    int64_t registers;     /* of an invocation (Intel: of a subgroup; Adreno: of four words) */
    int64_t spills;        /* registers (AMD) or moves (others) that the compiler put in memory */
    int64_t scratch_bytes; /* memory of spills and of arrays with computed indices */
    int64_t shared_bytes;  /* of a workgroup */
    int64_t subgroup;
    int64_t instructions;
    int64_t occupancy; /* most subgroups that a SIMD (AMD), SM (NVIDIA) or core (Adreno) holds */
};

/* The figures among statistics of a driver. False if neither spills nor scratch memory is among
 * them: then it is unknown whether the kernel spills. */
bool rf_kernel_figures_of(const struct rf_kernel_statistic *list, uint32_t count,
                          struct rf_kernel_figures *out);

/* The figures of a kernel: rf_kernel_figures_of its rf_kernel_statistics. */
bool rf_kernel_get_figures(const struct rf_kernel *kernel, struct rf_kernel_figures *out);

/* Compiles a kernel only to get its figures; the kernels that run are compiled as on any other
 * device. Figures that the driver does not report are -1. Errors are those of rf_kernel_create. */
RF_MUST_CHECK int rf_device_probe(struct rf_device *device, const struct rf_kernel_desc *desc,
                                  struct rf_kernel_figures *out);

/* Whether rf_device_probe is available. */
bool rf_device_probes(const struct rf_device *device);

/* Tests: rf_device_probe calls this function instead of the driver; false: no figures. */
void rf_device_fake_figures(struct rf_device *device,
                            bool (*figures)(void *user, const struct rf_kernel_desc *desc,
                                            struct rf_kernel_figures *figures),
                            void *user);

/* Calls `visit` for each kernel that the device has compiled for the library, in no order. */
void rf_device_each_kernel(struct rf_device *device,
                           void (*visit)(void *user, const struct rf_kernel_desc *desc,
                                         const struct rf_kernel *kernel),
                           void *user);

/* Tests: omits the nth (from 1) barrier between commands of one submission that the stream would
 * record from now on. 0: none. */
void rf_stream_skip_barrier(struct rf_stream *stream, uint64_t nth);
/* The number of barriers between commands of one submission so far, and of conflicts that the
 * checker has found. */
uint64_t rf_stream_barriers(const struct rf_stream *stream);
uint64_t rf_stream_conflicts(const struct rf_stream *stream);

/* The number of warnings and errors of the validation layer so far. Always 0 unless RF_VALIDATION=1
 * was set when the device was opened; opening fails if the layer is not installed. */
uint64_t rf_device_validation_messages(const struct rf_device *device);

/* Tests, with RF_CHECK_RANGES: from now on each launch is also judged with each of its ranges
 * declared wrong, until every mistake was detected. No effect without RF_CHECK_RANGES. Returns the
 * mistakes tried, valid until the next launch. */
enum rf_range_mistake { RF_RANGE_HALVED, RF_RANGE_SHIFTED, RF_RANGE_LEFT_OUT, RF_RANGE_MISTAKES };
struct rf_range_trial {
    char kernel[48];
    uint32_t range, range_count;
    enum rf_range_mistake mistake;
    bool write, noticed;
    uint32_t tries; /* 0: other ranges of each launch include what this one lost */
};
void rf_device_try_ranges(struct rf_device *device);
const struct rf_range_trial *rf_device_range_trials(const struct rf_device *device, size_t *count);

/* Whether kernels assign a row, or a chunk of a sum, to a team of lanes, so that the lanes of a
 * subgroup read adjacent elements. Otherwise one lane has a whole row, which suits CPU drivers. */
bool rf_device_teams(const struct rf_device *device);
/* Tests: from now on also on a CPU device, or no longer. */
void rf_device_force_teams(struct rf_device *device, bool teams);

/* Tests: views made from now on hold at most this many texels (a multiple of 32768), and storage
 * buffers that many bytes. */
void rf_device_limit_views(struct rf_device *device, uint32_t texels);

/* Tests: the next submission fails as if the device had been lost. */
void rf_device_fail_next_submit(struct rf_device *device);

#define RF_CACHE_PATH_BYTES 1024
/* The path of a file for a device and its driver, with this suffix, in the cache folder
 * (RF_CACHE_DIR, or the user's). `create` makes the parent folders. False: no cache folder. */
bool rf_device_cache_path(const struct rf_device *device, const char *suffix, char *path,
                          bool create);

/* ---- files of lines in the cache folder (cache_lines.c) -------------------------------------- */

/* The device and driver that such a file belongs to. */
struct rf_driver_key {
    uint8_t device_uuid[16], driver_uuid[16];
    uint32_t driver_version;
    uint32_t cpu; /* for CPU devices, whose UUIDs do not identify machines (rf_cpu_hash) */
};
struct rf_driver_key rf_driver_key_of(const struct rf_device *device);
/* Identifies a CPU device: the name and the number of the processors in the text of /proc/cpuinfo,
 * and the device's name, which has LLVM's version and the vector width. Values that change while a
 * machine runs, such as clock rates, are excluded. Never 0. */
uint32_t rf_cpu_hash(const char *cpuinfo, const char *device_name);
bool rf_driver_keys_equal(const struct rf_driver_key *a, const struct rf_driver_key *b);

#define RF_CACHE_LINE_BYTES 128 /* maximum length of a line, with its end */
struct rf_cache_lines {
    const char *suffix; /* of the file, and in its first line */
    int version;        /* of the meaning of its lines */
    uint32_t most;      /* lines */
    const char *remedy; /* for a damaged file: "run `ringforge tune` again" */
};
/* Passes the lines of the file of this device and driver to `take`, which returns whether a line is
 * valid. False: no file, or (logged) it is damaged, and the lines taken are void. */
bool rf_cache_lines_load(const struct rf_device *device, const struct rf_cache_lines *kind,
                         bool (*take)(void *user, const char *line), void *user);
/* Writes or replaces the file as a whole. `print` writes line i, with its end. path (NULL: unused)
 * receives the file's name, at most `bytes`. RF_EIO: writing failed. Two threads of a process must
 * not write the same file at once. */
RF_MUST_CHECK int rf_cache_lines_save(const struct rf_device *device,
                                      const struct rf_cache_lines *kind, uint32_t count,
                                      void (*print)(void *user, uint32_t i, FILE *file), void *user,
                                      char *path, size_t bytes);

#endif
