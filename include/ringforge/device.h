/* SPDX-License-Identifier: MIT
 *
 * Devices, memory, streams, timelines and kernels: a thin, bare-metal layer over Vulkan 1.2
 * compute. There are no descriptor sets: a kernel gets raw 64-bit device addresses in push
 * constants.
 *
 * Thread safety: a device may be used from several threads; a stream from one thread at a time.
 */
#ifndef RINGFORGE_DEVICE_H
#define RINGFORGE_DEVICE_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_device;
struct rf_buffer;
struct rf_stream;
struct rf_kernel;

/* ---- devices --------------------------------------------------------------------------------- */

enum rf_device_kind {
    RF_DEVICE_OTHER = 0,
    RF_DEVICE_INTEGRATED,
    RF_DEVICE_DISCRETE,
    RF_DEVICE_CPU
};

/* A product (m,k) times (k,n) that matrix units do at once, sums in fp32. */
struct rf_matrix_shape {
    uint16_t m, n, k;
    uint16_t invocations;  /* 0: by a subgroup. Else by a workgroup of this many invocations, and
                              any multiples of m, n and k */
    enum rf_dtype operand; /* RF_F16 or RF_BF16 */
};
#define RF_MAX_MATRIX_SHAPES 32

/* The feature record. What is false has a path without it. */
struct rf_device_info {
    char name[256];   /* "llvmpipe (LLVM 15.0.6, 256 bits)" */
    char driver[512]; /* "llvmpipe, Mesa 22.3.6 (LLVM 15.0.6)" */
    uint32_t index;   /* as rf_device_open takes it */
    uint32_t vendor_id, device_id, driver_id, driver_version, api_version;
    uint8_t device_uuid[16], driver_uuid[16];
    enum rf_device_kind kind;
    bool usable;      /* has what the library requires */
    char reason[256]; /* why not usable; empty when usable */
    uint32_t subgroup_size;
    bool subgroup_shuffle, subgroup_arithmetic;
    bool int64, float16, int16, int8, float64;
    bool storage16, storage8;  /* 16- and 8-bit loads and stores in storage memory */
    bool cooperative_matrix;   /* matrix units, through VK_KHR_cooperative_matrix */
    bool workgroup_matrix;     /* the same by whole workgroups, VK_NV_cooperative_matrix2 */
    bool bfloat16;             /* VK_KHR_shader_bfloat16 is offered */
    bool host_visible;         /* device memory can be mapped: no staging is needed */
    bool single_queue;         /* one queue only: submissions are held back until they can run */
    bool external_memory_host; /* rf_buffer_import */
    bool dma_buf;              /* the driver could export device memory to other devices */
    uint32_t max_workgroup_invocations, max_workgroup_size[3], max_workgroup_count[3];
    uint32_t max_shared_bytes, max_push_bytes;
    uint64_t max_allocation_bytes, heap_bytes;
    uint64_t min_import_alignment; /* of external_memory_host; 0 without it */
    float timestamp_period_ns;     /* 0: no timestamps */
    struct rf_matrix_shape matrix_shapes[RF_MAX_MATRIX_SHAPES]; /* with 16-bit float operands */
    uint32_t matrix_shape_count;
    char matrix_reason[96]; /* why there are no matrix units; empty when there are */
};

/* Fills up to `capacity` records and the number of devices there are. With no Vulkan on the machine
 * it returns RF_ENODEV, and the message says what to install. */
RF_API int rf_device_list(struct rf_device_info *infos, uint32_t capacity, uint32_t *count);

struct rf_device_opts {
    bool check_barriers; /* run the hazard checker on every submission (also RF_CHECK_BARRIERS=1) */
    bool profile;        /* time every labelled region with device timestamps */
    bool profile_launches;  /* with profile: every launch and fill, too, under its kernel's name */
    bool kernel_statistics; /* have the driver's compiler keep registers, spills, ... of kernels */
    bool hide_host_memory;  /* pretend that device memory cannot be mapped, so that it is staged
                               (also  RF_HOST_VISIBLE=0) */
    bool hide_matrix_units; /* pretend that there are none (also RF_MATRIX_UNITS=0) */
};

/* Opens a device: NULL or "best" (usable; discrete before integrated before CPU), an index ("0"),
 * or a part of its name ("llvmpipe", without regard to case). opts may be NULL. Blocks for
 * the driver's start. Errors: RF_ENODEV (none, no such, not usable: names what is there). */
RF_API int rf_device_open(const char *select, const struct rf_device_opts *opts,
                          struct rf_device **out);
/* Waits for all work, then frees. NULL is allowed. Buffers, streams and kernels of the device must
 * have been destroyed before. */
RF_EXPORT void rf_device_close(struct rf_device *device);
/* Borrowed; valid until the device is closed. */
RF_EXPORT const struct rf_device_info *rf_device_get_info(const struct rf_device *device);
/* Waits until everything submitted has finished. */
RF_API int rf_device_wait(struct rf_device *device);

/* ---- counting -------------------------------------------------------------------------------- */

/* What launches amount to. Bytes are the least that has to move: each operand of a launch once for
 * being read and once for being written, whatever caches make of reading it again. */
struct rf_work {
    uint64_t launches; /* dispatches, copies and fills */
    uint64_t unranged; /* of these, dispatches that declare no ranges: their bytes are not known */
    /* Floating-point operations, those of a multiply-add being two, and a function (exp, tanh) one.
     * A launch of the library that does not say how many counts one for each element of its largest
     * operand, also where it only moves them. Copies and fills have none. */
    uint64_t flops;
    /* Of these, what had been computed before: in attention's backward pass, and what was
     * announced by rf_stream_repeats. */
    uint64_t repeated;
    uint64_t read, written; /* bytes */
};
/* Adds `times` as much as `work` to *sum. */
RF_EXPORT void rf_work_add(struct rf_work *sum, const struct rf_work *work, uint64_t times);

/* Opens a device that runs nothing and counts what it is given: launches of the library's
 * operations by what they declare, those of rf_launch by their ranges (a range that is read and
 * written counts as written). It needs no Vulkan. All checks of arguments are made. Which kernels
 * are taken, and so the number of launches, is as on a discrete GPU without matrix units.
 *   Buffers of RF_MEMORY_DEVICE have addresses and no memory: one may be of 2^56 bytes; writing to
 * them does nothing, and reading from them fails with RF_ENOTSUP. Those of RF_MEMORY_HOST are
 * mapped. Kernels are not compiled, and those of another device may be launched, as its buffers may
 * be used. Whatever a stream is told to wait for counts as reached. rf_record_begin fails with
 * RF_ENOTSUP. */
RF_API int rf_device_open_counting(struct rf_device **out);
/* What a counting device has been given since it was opened; zero on other devices. Thread-safe. */
RF_EXPORT void rf_device_work(const struct rf_device *device, struct rf_work *out);

/* ---- rates ----------------------------------------------------------------------------------- */

/* What a device was measured to reach, to compare with. */
struct rf_device_rates {
    double products[3]; /* FLOP/s of its best matrix product in f32, f16, bf16; 0: not measured */
    double bytes_per_s; /* that a kernel reads and writes in its memory; 0: not measured */
    double launch_s;    /* of a kernel that does next to nothing, behind others; 0: not measured */
};
RF_EXPORT double rf_device_rates_of(const struct rf_device_rates *rates, enum rf_dtype type);
/* Keeps the higher rate. */
RF_EXPORT void rf_device_rates_note(struct rf_device_rates *rates, enum rf_dtype type,
                                    double flops_per_s);
/* The rates of this device and driver in the cache folder (RF_CACHE_DIR), which `ringforge tune`
 * writes. False: there are none, or the file is damaged, which the log says; *out stays. */
RF_EXPORT bool rf_device_rates_load(const struct rf_device *device, struct rf_device_rates *out);
/* Replaces them. RF_EIO: the folder cannot be written. */
RF_API int rf_device_rates_save(const struct rf_device *device,
                                const struct rf_device_rates *rates);

/* ---- memory ---------------------------------------------------------------------------------- */

enum rf_memory {
    RF_MEMORY_DEVICE = 0, /* fastest for kernels; mapped only where info.host_visible */
    RF_MEMORY_HOST /* host-visible, coherent, cached if there is such a kind; always mapped */
};

/* What an allocation is for; the device counts bytes and high water by it. */
enum rf_category {
    RF_CATEGORY_OTHER = 0,
    RF_CATEGORY_PARAMS,
    RF_CATEGORY_GRADS,
    RF_CATEGORY_OPTIMIZER,
    RF_CATEGORY_ACTIVATIONS,
    RF_CATEGORY_COMM,
    RF_CATEGORY_SCRATCH,
    RF_CATEGORY_COUNT
};
RF_EXPORT const char *rf_category_name(enum rf_category category);

/* Allocates `bytes` (> 0), zeroed, at an address aligned to 256. One buffer, one vkAllocateMemory.
 * Errors: RF_ENOMEM says how much was wanted and what the limit is. */
RF_API int rf_buffer_create(struct rf_device *device, uint64_t bytes, enum rf_memory memory,
                            enum rf_category category, struct rf_buffer **out);
/* A buffer in memory of the caller's own, which kernels and collectives then use in place. Address
 * and size are multiples of info.min_import_alignment; the memory must stay until the buffer has
 * been destroyed, which does not free it. It keeps its contents and is in no count of bytes; it is
 * mapped, also where device memory is not. RF_ENOTSUP: the device cannot, or refuses this memory
 * (GPU drivers may refuse pages of files). */
RF_API int rf_buffer_import(struct rf_device *device, void *memory, uint64_t bytes,
                            struct rf_buffer **out);
/* NULL is allowed. No submitted work may still use it. */
RF_EXPORT void rf_buffer_destroy(struct rf_buffer *buffer);
RF_EXPORT uint64_t rf_buffer_address(const struct rf_buffer *buffer); /* device address */
RF_EXPORT uint64_t rf_buffer_bytes(const struct rf_buffer *buffer);
RF_EXPORT void *
rf_buffer_map(const struct rf_buffer *buffer); /* host pointer; NULL if not mapped */
RF_EXPORT struct rf_device *rf_buffer_device(const struct rf_buffer *buffer);
/* Blocking copies between host memory and any buffer, staged where it is not mapped. They do not
 * wait for streams: wait for the work that uses the range first. */
RF_API int rf_buffer_write(struct rf_buffer *buffer, uint64_t offset, const void *src,
                           uint64_t bytes);
RF_API int rf_buffer_read(const struct rf_buffer *buffer, uint64_t offset, void *dst,
                          uint64_t bytes);

/* Bytes given to vkAllocateMemory, by category. */
struct rf_memory_stats {
    uint64_t now[RF_CATEGORY_COUNT], peak[RF_CATEGORY_COUNT];
    uint64_t allocations; /* calls so far */
};
RF_EXPORT void rf_device_memory(const struct rf_device *device, struct rf_memory_stats *out);
/* Sets every peak to what is allocated now. */
RF_EXPORT void rf_device_memory_reset_peak(struct rf_device *device);

/* ---- timelines ------------------------------------------------------------------------------- */

/* A counter that only grows, signalled by the host or by the device's work. Starts at 0. */
RF_API int rf_timeline_create(struct rf_device *device, struct rf_timeline **out);
RF_EXPORT void rf_timeline_destroy(struct rf_timeline *timeline);
/* Signals from the host; `value` must be larger than every value signalled before. */
RF_API int rf_timeline_signal(struct rf_timeline *timeline, uint64_t value);
/* Blocks until the point is reached: RF_OK; or RF_ETIMEOUT without setting the last error's text to
 * more than that. timeout_ns 0 tests. */
RF_API int rf_point_wait(struct rf_point point, uint64_t timeout_ns);
RF_EXPORT bool rf_point_reached(struct rf_point point);

/* ---- streams --------------------------------------------------------------------------------- */

/* Streams are in order: what is recorded later sees the results of what was recorded earlier on the
 * same stream. The library puts a barrier where two launches conflict, and nowhere else. Between
 * streams only points order. */
RF_API int rf_stream_create(struct rf_device *device, const char *name, struct rf_stream **out);
/* Waits for the stream's work. NULL is allowed. */
RF_EXPORT void rf_stream_destroy(struct rf_stream *stream);
RF_EXPORT struct rf_device *rf_stream_device(const struct rf_stream *stream);
/* What is recorded from now on runs after `point`. Flushes what was recorded before. The point may
 * be signalled by the host later; nothing behind it on other streams is held up. */
RF_API int rf_stream_after(struct rf_stream *stream, struct rf_point point);
/* Hands everything recorded to the device and does not block; `done` (may be NULL) is reached when
 * all of it has run. */
RF_API int rf_stream_submit(struct rf_stream *stream, struct rf_point *done);
/* Submits and blocks until all of it has run. Errors of earlier work surface here. */
RF_API int rf_stream_wait(struct rf_stream *stream);
RF_API int rf_stream_copy(struct rf_stream *stream, struct rf_buffer *dst, uint64_t dst_offset,
                          struct rf_buffer *src, uint64_t src_offset, uint64_t bytes);
/* offset and bytes are multiples of 4. */
RF_API int rf_stream_fill(struct rf_stream *stream, struct rf_buffer *dst, uint64_t offset,
                          uint64_t bytes, uint32_t word);

/* What is recorded between begin and end is kept instead of run, and replayed as often as wanted:
 * a replay costs one submission, whatever the number of launches. Arguments of kernels are kept
 * as they were; what is to differ from replay to replay is read from memory. Between begin and end
 * the stream neither submits nor waits (RF_EINVAL). */
struct rf_recording;
RF_API int rf_record_begin(struct rf_stream *stream);
/* The caller owns *out. With out NULL what was recorded is given up. */
RF_API int rf_record_end(struct rf_stream *stream, struct rf_recording **out);
/* Submits the recording behind everything before it, on the stream it was recorded on; does not
 * block, and may be called again at once. RF_EINVAL: a buffer or kernel that it uses has been
 * destroyed (by the ranges of its launches; of one without ranges, by the addresses in its push
 * constants). */
RF_API int rf_record_replay(struct rf_stream *stream, struct rf_recording *recording);
/* Waits for its last replay. NULL is allowed. Before the stream is destroyed. */
RF_EXPORT void rf_recording_destroy(struct rf_recording *recording);
/* Labels nest; they reach RenderDoc, Nsight and RGP, and, when the device was opened with profile,
 * the trace. */
RF_EXPORT void rf_stream_push_label(struct rf_stream *stream, const char *label);
RF_EXPORT void rf_stream_pop_label(struct rf_stream *stream);

/* ---- kernels: SPIR-V or GLSL of your own, or of the library ---------------------------------- */

struct rf_spec {
    uint32_t id, value;
};

struct rf_kernel_desc {
    const char *name;      /* for labels, errors and the pipeline cache */
    const uint32_t *spirv; /* entry point "main"; only push constants, no descriptors */
    size_t spirv_bytes;
    const struct rf_spec *specs; /* specialization constants */
    uint32_t spec_count;
    uint32_t push_bytes;    /* at most info.max_push_bytes; 128 is safe everywhere */
    uint32_t subgroup_size; /* required size; 0 = the device's own */
    /* Instead of spirv: GLSL text of a compute shader for Vulkan 1.2. libshaderc compiles it, which
     * is loaded when it is first needed; without it the program glslangValidator. Text that does
     * not begin with "#version" gets a beginning: version 450, workgroups of 64 invocations, and
     * the types Floats and Ints, which are addresses of arrays and have one member, at[]:
     *     layout(push_constant) uniform Push { Floats y, x; uint n; };
     *     void main() { uint i = gl_GlobalInvocationID.x; if (i < n) y.at[i] = 2.0 * x.at[i]; } */
    const char *glsl;
};
/* Compiles. May block for as long as the compilers take. The description is not needed afterwards.
 * RF_EINVAL: the text does not compile (the message says why and where), or the SPIR-V is not what
 * is allowed; RF_ENOTSUP: the device lacks what it needs, or there is no compiler for text. */
RF_API int rf_kernel_create(struct rf_device *device, const struct rf_kernel_desc *desc,
                            struct rf_kernel **out);
RF_EXPORT void rf_kernel_destroy(struct rf_kernel *kernel);

/* An address range that a launch touches. */
struct rf_range {
    uint64_t address, bytes;
    bool write; /* true also for read and write */
};
/* Records one dispatch of groups[0] x groups[1] x groups[2] workgroups. `ranges` says what it reads
 * and writes; with range_count 0 it is taken to touch everything. A zero in groups records
 * nothing. */
RF_API int rf_launch(struct rf_stream *stream, struct rf_kernel *kernel, const void *push,
                     uint32_t push_bytes, const uint32_t groups[3], const struct rf_range *ranges,
                     uint32_t range_count);
/* What the ranges of a launch do not say: a counting device adds this to its count. Does nothing on
 * other devices. For a kernel of one's own: its FLOPs, and bytes that it reads of ranges that it
 * writes. */
RF_EXPORT void rf_stream_count(struct rf_stream *stream, const struct rf_work *more);
/* Whether what is given to the stream from now on has been computed before, as activations are that
 * were not kept: a counting device counts all of its FLOPs as repeated. Does nothing on other
 * devices. */
RF_EXPORT void rf_stream_repeats(struct rf_stream *stream, bool repeats);

#ifdef __cplusplus
}
#endif
#endif
