/* SPDX-License-Identifier: MIT
 *
 * Devices, memory, streams, timelines and kernels: a thin layer over Vulkan 1.2 compute. Kernels
 * use no descriptor sets. They get raw 64-bit device addresses in push constants.
 *
 * Thread safety: several threads may use one device. One thread at a time uses a stream.
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

/* The size of a product (m,k) times (k,n) that matrix units compute at once, with f32 sums. */
struct rf_matrix_shape {
    uint16_t m, n, k;
    /* 0: a subgroup computes it. Else a workgroup of this many invocations, and any multiples of m,
     * n and k. */
    uint16_t invocations;
    enum rf_dtype operand; /* RF_F16 or RF_BF16 */
};
#define RF_MAX_MATRIX_SHAPES 32

/* The properties and features of a device. The library also works without every feature that is
 * false here. */
struct rf_device_info {
    char name[256];   /* "llvmpipe (LLVM 15.0.6, 256 bits)" */
    char driver[512]; /* "llvmpipe, Mesa 22.3.6 (LLVM 15.0.6)" */
    uint32_t index;   /* the index for rf_device_open */
    uint32_t vendor_id, device_id, driver_id, driver_version, api_version;
    uint8_t device_uuid[16], driver_uuid[16];
    enum rf_device_kind kind;
    bool usable;            /* has everything that the library requires */
    char reason[256];       /* the reason why it is not usable; empty if it is */
    uint32_t subgroup_size; /* of a kernel without a required size */
    /* The sizes that a kernel may require: powers of 2 between these. */
    uint32_t min_subgroup_size, max_subgroup_size;
    bool subgroup_shuffle, subgroup_arithmetic;
    bool int64, float16, int16, int8, float64;
    bool storage16, storage8;  /* 16- and 8-bit loads and stores in storage memory */
    bool cooperative_matrix;   /* matrix units, by VK_KHR_cooperative_matrix */
    bool workgroup_matrix;     /* matrix units of a whole workgroup, VK_NV_cooperative_matrix2 */
    bool bfloat16;             /* VK_KHR_shader_bfloat16 */
    bool host_visible;         /* the host can map device memory: no staging is needed */
    bool single_queue;         /* one queue: submissions that must wait are held on the host */
    bool external_memory_host; /* rf_buffer_import works */
    bool dma_buf;              /* the driver can export device memory to other devices */
    uint32_t max_workgroup_invocations, max_workgroup_size[3], max_workgroup_count[3];
    uint32_t max_shared_bytes, max_push_bytes;
    uint64_t max_allocation_bytes, heap_bytes;
    uint64_t min_import_alignment; /* for rf_buffer_import; 0 without external_memory_host */
    float timestamp_period_ns;     /* 0: no timestamps */
    struct rf_matrix_shape matrix_shapes[RF_MAX_MATRIX_SHAPES]; /* with 16-bit float operands */
    uint32_t matrix_shape_count;
    /* The reason why the member of that name is false, or why there are no matrix units; empty if
     * there are. */
    char matrix_reason[160], workgroup_reason[160], bfloat16_reason[160], dma_buf_reason[160];
};

/* Fills at most `capacity` records; *count is the number of all devices. RF_ENODEV: Vulkan is not
 * installed, and the message says what to install. */
RF_API int rf_device_list(struct rf_device_info *infos, uint32_t capacity, uint32_t *count);

struct rf_device_opts {
    bool check_barriers;    /* check every submission for hazards (also RF_CHECK_BARRIERS=1) */
    bool profile;           /* time every labelled region by device timestamps */
    bool profile_launches;  /* with profile: time every launch and fill too, by kernel name */
    bool kernel_statistics; /* ask the driver's compiler for registers, spills, ... of kernels */
    bool hide_host_memory;  /* act as if the host could not map device memory: use staging (also
                               RF_HOST_VISIBLE=0) */
    bool hide_matrix_units; /* act as if there were no matrix units (also RF_MATRIX_UNITS=0) */
};

/* Opens a device. select: NULL or "best" (a usable one; discrete before integrated before CPU), an
 * index ("0"), or a part of its name ("llvmpipe"; case does not matter). opts may be NULL. Blocks
 * while the driver starts. Errors: RF_ENODEV (no device, none of that name, or not usable; the
 * message lists the devices). */
RF_API int rf_device_open(const char *select, const struct rf_device_opts *opts,
                          struct rf_device **out);

/* Waits for all work, then frees the device. Destroy its buffers, streams and kernels before. NULL
 * is allowed. */
RF_EXPORT void rf_device_close(struct rf_device *device);

/* Owned by the device; valid until it is closed. */
RF_EXPORT const struct rf_device_info *rf_device_get_info(const struct rf_device *device);

/* Blocks until all submitted work has ended. */
RF_API int rf_device_wait(struct rf_device *device);

/* ---- counting work --------------------------------------------------------------------------- */

/* The amount of work of some launches. Bytes are a lower bound of the memory traffic: each operand
 * of a launch counts once if it is read, and once if it is written. */
struct rf_work {
    uint64_t launches; /* dispatches, copies and fills */
    uint64_t unranged; /* of these, dispatches without ranges: their bytes are unknown */
    /* Floating-point operations. A multiply-add counts as 2, a function (exp, tanh) as 1. A launch
     * of the library that declares none counts 1 for each element of its largest operand, even if
     * it only moves them. Copies and fills count none. */
    uint64_t flops;
    /* Of these, repeated operations: recomputation in the backward pass of attention, and work
     * marked by rf_stream_repeats. */
    uint64_t repeated;
    uint64_t read, written; /* bytes */
};

/* Adds `times` times `work` to *sum. */
RF_EXPORT void rf_work_add(struct rf_work *sum, const struct rf_work *work, uint64_t times);

/* Opens a device that runs nothing and counts its work. It needs no Vulkan. Operations of the
 * library count the work that they declare. rf_launch counts its ranges; a range that is read and
 * written counts as written. Arguments are checked as on any device. Kernels are chosen as on a
 * discrete GPU without matrix units, so the number of launches is that of such a GPU.
 *   Buffers of RF_MEMORY_DEVICE have addresses and no memory, and may have up to 2^56 bytes.
 * Writing to them does nothing; reading fails with RF_ENOTSUP. Buffers of RF_MEMORY_HOST are
 * mapped. Buffers and kernels of other devices may be used. Kernels are not compiled. Every point
 * that a stream waits for counts as reached. rf_record_begin fails with RF_ENOTSUP. */
RF_API int rf_device_open_counting(struct rf_device **out);

/* The work that a counting device has been given since it was opened; zero on other devices.
 * Thread-safe. */
RF_EXPORT void rf_device_work(const struct rf_device *device, struct rf_work *out);

/* ---- measured rates -------------------------------------------------------------------------- */

/* Rates that a device has reached in a measurement; 0: not measured. */
struct rf_device_rates {
    double products[3]; /* FLOP/s of the best matrix product in f32, f16, bf16 */
    double bytes_per_s; /* that a kernel reads and writes in device memory */
    double launch_s;    /* of an almost empty kernel after others */
};

/* The FLOP/s of products in this type. */
RF_EXPORT double rf_device_rates_of(const struct rf_device_rates *rates, enum rf_dtype type);

/* Sets the rate of this type if `flops_per_s` is higher. */
RF_EXPORT void rf_device_rates_note(struct rf_device_rates *rates, enum rf_dtype type,
                                    double flops_per_s);

/* Reads the rates of this device and driver from the cache folder (RF_CACHE_DIR); `ringforge tune`
 * writes them. False: there are none, or the file is damaged, which is logged; *out is unchanged.
 */
RF_EXPORT bool rf_device_rates_load(const struct rf_device *device, struct rf_device_rates *out);

/* Writes or replaces that file. RF_EIO: writing failed. */
RF_API int rf_device_rates_save(const struct rf_device *device,
                                const struct rf_device_rates *rates);

/* ---- memory ---------------------------------------------------------------------------------- */

enum rf_memory {
    RF_MEMORY_DEVICE = 0, /* fastest for kernels; mapped only if info.host_visible */
    RF_MEMORY_HOST,       /* host-visible and coherent, cached if available; always mapped */
    RF_MEMORY_DISK        /* a file; only in plans: there are no buffers of it */
};

/* The purpose of an allocation. The device counts current and peak bytes for each. */
enum rf_category {
    RF_CATEGORY_OTHER = 0,
    RF_CATEGORY_PARAMS,
    RF_CATEGORY_GRADS,
    RF_CATEGORY_OPTIMIZER,
    RF_CATEGORY_ACTIVATIONS,
    RF_CATEGORY_COMM,
    RF_CATEGORY_SCRATCH,
    RF_CATEGORY_CACHE, /* key-value caches (generate.h) */
    RF_CATEGORY_COUNT
};
RF_EXPORT const char *rf_category_name(enum rf_category category);

/* Allocates `bytes` (> 0) of zeroed memory at an address aligned to 256, by one vkAllocateMemory.
 * The caller destroys the buffer. Errors: RF_ENOMEM (the message has the size and the limit). */
RF_API int rf_buffer_create(struct rf_device *device, uint64_t bytes, enum rf_memory memory,
                            enum rf_category category, struct rf_buffer **out);

/* Makes a buffer of the caller's own memory, which kernels and collectives then use in place.
 * Address and size must be multiples of info.min_import_alignment. The memory keeps its contents,
 * and must stay valid until the buffer has been destroyed, which does not free it. It is not in the
 * byte counts. The buffer is always mapped. RF_ENOTSUP: the device cannot import, or refuses this
 * memory (GPU drivers may refuse pages of files). */
RF_API int rf_buffer_import(struct rf_device *device, void *memory, uint64_t bytes,
                            struct rf_buffer **out);

/* No submitted work may still use the buffer. NULL is allowed. */
RF_EXPORT void rf_buffer_destroy(struct rf_buffer *buffer);

/* The device address. */
RF_EXPORT uint64_t rf_buffer_address(const struct rf_buffer *buffer);

RF_EXPORT uint64_t rf_buffer_bytes(const struct rf_buffer *buffer);

/* The host address; NULL if the buffer is not mapped. */
RF_EXPORT void *rf_buffer_map(const struct rf_buffer *buffer);

RF_EXPORT struct rf_device *rf_buffer_device(const struct rf_buffer *buffer);

/* Copies from host memory into a buffer, through staging memory if it is not mapped. Blocking. Does
 * not wait for streams: first wait for the work that uses the range. */
RF_API int rf_buffer_write(struct rf_buffer *buffer, uint64_t offset, const void *src,
                           uint64_t bytes);

/* The same in the other direction. */
RF_API int rf_buffer_read(const struct rf_buffer *buffer, uint64_t offset, void *dst,
                          uint64_t bytes);

/* Bytes passed to vkAllocateMemory, by category. */
struct rf_memory_stats {
    uint64_t now[RF_CATEGORY_COUNT], peak[RF_CATEGORY_COUNT];
    uint64_t allocations; /* number of calls so far */
};

RF_EXPORT void rf_device_memory(const struct rf_device *device, struct rf_memory_stats *out);

/* Sets every peak to the current value. */
RF_EXPORT void rf_device_memory_reset_peak(struct rf_device *device);

/* ---- timelines ------------------------------------------------------------------------------- */

/* A timeline is a counter that only grows. The host or the work of the device signals it. It starts
 * at 0. */
RF_API int rf_timeline_create(struct rf_device *device, struct rf_timeline **out);

RF_EXPORT void rf_timeline_destroy(struct rf_timeline *timeline);

/* Signals from the host. value must be larger than all values signalled before. */
RF_API int rf_timeline_signal(struct rf_timeline *timeline, uint64_t value);

/* Blocks until the point is reached. RF_ETIMEOUT: it was not, within timeout_ns; 0 only tests. That
 * error has a fixed text, so it is cheap to poll. */
RF_API int rf_point_wait(struct rf_point point, uint64_t timeout_ns);

RF_EXPORT bool rf_point_reached(struct rf_point point);

/* ---- streams --------------------------------------------------------------------------------- */

/* A stream runs its work in order: each launch sees the results of all earlier launches of the same
 * stream. The library inserts a barrier exactly where two launches conflict. Work of different
 * streams is ordered by points only. name is for labels and traces. */
RF_API int rf_stream_create(struct rf_device *device, const char *name, struct rf_stream **out);

/* Waits for the work of the stream. NULL is allowed. */
RF_EXPORT void rf_stream_destroy(struct rf_stream *stream);

RF_EXPORT struct rf_device *rf_stream_device(const struct rf_stream *stream);

/* Work recorded from now on waits for `point`. Submits the work recorded before. The host may
 * signal the point later. Other streams are not delayed. */
RF_API int rf_stream_after(struct rf_stream *stream, struct rf_point point);

/* Submits all recorded work. Does not block. *done is the point at which it has ended; done may be
 * NULL. */
RF_API int rf_stream_submit(struct rf_stream *stream, struct rf_point *done);

/* Submits, and blocks until all work of the stream has ended. Returns errors of earlier work. */
RF_API int rf_stream_wait(struct rf_stream *stream);

/* A place in a buffer. offset: bytes. */
struct rf_buffer_place {
    struct rf_buffer *buffer;
    uint64_t offset;
};

/* Records a copy. Offsets and size are bytes. */
RF_API int rf_stream_copy(struct rf_stream *stream, struct rf_buffer_place to,
                          struct rf_buffer_place from, uint64_t bytes);

/* Records a fill with a 32-bit word. offset and bytes must be multiples of 4. */
RF_API int rf_stream_fill(struct rf_stream *stream, struct rf_buffer *dst, uint64_t offset,
                          uint64_t bytes, uint32_t word);

/* ---- recordings ------------------------------------------------------------------------------ */

/* Commands between rf_record_begin and rf_record_end are kept instead of run. They can be replayed
 * any number of times, each time by one submission. Arguments of kernels stay as recorded; a kernel
 * must read from memory any value that differs between replays. While it records, a stream can
 * neither submit nor wait (RF_EINVAL). */
struct rf_recording;

RF_API int rf_record_begin(struct rf_stream *stream);

/* The caller destroys *out. With out NULL the commands are discarded. */
RF_API int rf_record_end(struct rf_stream *stream, struct rf_recording **out);

/* Submits the recording after all earlier work of the stream that recorded it. Does not block. The
 * same recording may be replayed again at once. RF_EINVAL: a buffer or kernel that it uses has been
 * destroyed. (Buffers are known by the ranges of the launches; for a launch without ranges, by the
 * addresses in its push constants.) */
RF_API int rf_record_replay(struct rf_stream *stream, struct rf_recording *recording);

/* Waits for its last replay. Destroy it before the stream. NULL is allowed. */
RF_EXPORT void rf_recording_destroy(struct rf_recording *recording);

/* Opens a labelled region. Labels nest. RenderDoc, Nsight and RGP show them, and so does the trace
 * if the device was opened with `profile`. */
RF_EXPORT void rf_stream_push_label(struct rf_stream *stream, const char *label);

RF_EXPORT void rf_stream_pop_label(struct rf_stream *stream);

/* ---- kernels --------------------------------------------------------------------------------- */

/* A specialization constant. */
struct rf_spec {
    uint32_t id, value;
};

/* SPIR-V or GLSL of a compute shader. Pass one of spirv and glsl. */
struct rf_kernel_desc {
    const char *name;      /* for labels, errors and the pipeline cache */
    const uint32_t *spirv; /* entry point "main"; push constants only, no descriptors */
    size_t spirv_bytes;
    const struct rf_spec *specs; /* specialization constants */
    uint32_t spec_count;
    uint32_t push_bytes;    /* at most info.max_push_bytes; 128 works on every device */
    uint32_t subgroup_size; /* required size; 0 = the default of the device */
    /* Text of a compute shader for Vulkan 1.2. It is compiled by libshaderc, which is loaded on
     * first use, or else by the program glslangValidator. Text that does not begin with "#version"
     * gets a header: version 450, workgroups of 64 invocations, and the types Floats and Ints,
     * which are addresses of arrays and have one member, at[]:
     *     layout(push_constant) uniform Push { Floats y, x; uint n; };
     *     void main() { uint i = gl_GlobalInvocationID.x; if (i < n) y.at[i] = 2.0 * x.at[i]; }
     */
    const char *glsl;
};

/* Compiles a kernel. Blocks while the compilers run. desc may be freed afterwards. The caller
 * destroys the kernel. Errors: RF_EINVAL (the text does not compile: the message has the compiler's
 * reason and line; or the SPIR-V uses something that is not allowed), RF_ENOTSUP (the device lacks
 * a feature, or no compiler for text is installed). */
RF_API int rf_kernel_create(struct rf_device *device, const struct rf_kernel_desc *desc,
                            struct rf_kernel **out);

RF_EXPORT void rf_kernel_destroy(struct rf_kernel *kernel);

/* A range of device addresses that a launch accesses. */
struct rf_range {
    uint64_t address, bytes;
    bool write; /* true also if it is read and written */
};

/* groups[0] x groups[1] x groups[2] workgroups. ranges: what they read and write. With range_count
 * 0 they are taken to use all memory. */
struct rf_dispatch {
    const void *push; /* push constants */
    uint32_t push_bytes;
    const uint32_t *groups; /* [3] */
    const struct rf_range *ranges;
    uint32_t range_count;
};

/* Records one dispatch; nothing if one of its groups is 0. What it refers to is not needed
 * afterwards. */
RF_API int rf_launch(struct rf_stream *stream, struct rf_kernel *kernel,
                     struct rf_dispatch dispatch);

/* Adds work to the count of a counting device that the ranges of a launch do not show: for a kernel
 * of your own, its FLOPs, and the bytes that it reads from ranges that it writes. No effect on
 * other devices. */
RF_EXPORT void rf_stream_count(struct rf_stream *stream, const struct rf_work *more);

/* Whether the work recorded from now on repeats earlier work, as recomputed activations do. A
 * counting device counts its FLOPs as `repeated`. No effect on other devices. */
RF_EXPORT void rf_stream_repeats(struct rf_stream *stream, bool repeats);

#ifdef __cplusplus
}
#endif
#endif
