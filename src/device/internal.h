/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of device/: the objects of the public handles, and the locks
 * that guard their members. No file outside this folder includes it.
 */
#ifndef RF_DEVICE_INTERNAL_H
#define RF_DEVICE_INTERNAL_H

#include <pthread.h>

#include "../base/base.h"
#include "device.h"
#include "vulkan.h"

#define RF_MAX_QUEUES 4
#define RF_NAME_BYTES 48

/* ---- select.c -------------------------------------------------------------------------------- */

/* Properties that opening a device needs in addition to the public ones. */
struct rf_device_caps {
    VkSubgroupFeatureFlags subgroup_operations; /* in compute shaders */
    bool subgroup_size_control, full_subgroups;
    uint32_t subgroup_min, subgroup_max;
    bool memory_model, memory_model_device_scope;
    bool api_1_3;
    bool bfloat16_matrix;     /* bfloat16 in cooperative matrices */
    bool uniform16, uniform8; /* 16- and 8-bit types in uniform blocks as well */
    bool subgroup_extended_types;
    bool ext_subgroup_size_control, ext_external_memory_host, ext_cooperative_matrix, ext_dma_buf,
        ext_memory_fd, ext_bfloat16;
    bool ext_cooperative_matrix2;
    bool ext_executable_properties;
    uint32_t family, queue_count, timestamp_bits;
    uint8_t pipeline_cache_uuid[16];
    bool ext_push_descriptor, views; /* views: kernels may read through texel views */
    uint32_t max_texels;             /* of one view */
    bool wide_writes;                /* storage buffer writes are fast: rf_view_writable */
    uint64_t max_storage_range, storage_alignment;
};
int rf_select_device(const struct rf_vk_instance *instance, const char *select,
                     VkPhysicalDevice *physical, struct rf_device_info *info,
                     struct rf_device_caps *caps);

/* ---- cpu.c --------------------------------------------------------------------------------------
 */

/* rf_cpu_hash of this machine and a CPU device; 0 for any other. */
uint32_t rf_cpu_of(const struct rf_device_info *info);

/* ---- matrix.c -------------------------------------------------------------------------------- */

/* The reason why a feature of an extension is missing: "" if it is present, else whether the driver
 * lacks the extension or the feature. */
void rf_extension_reason(char *text, size_t bytes, const char *extension, bool offered,
                         const char *feature, bool there);

/* Fills the members of info and caps about matrix units. The driver has filled the features. */
void rf_matrix_describe(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                        const VkPhysicalDeviceCooperativeMatrixFeaturesKHR *khr,
                        const VkPhysicalDeviceShaderBfloat16FeaturesKHR *bfloat16,
                        const VkPhysicalDeviceCooperativeMatrix2FeaturesNV *nv,
                        struct rf_device_info *info, struct rf_device_caps *caps);
/* Sets the members as if there were no matrix units. */
void rf_matrix_hide(struct rf_device_info *info, struct rf_device_caps *caps, const char *why);

/* ---- memory.c -------------------------------------------------------------------------------- */

struct rf_buffer {
    struct rf_device *device;
    VkBuffer handle;
    VkDeviceMemory memory;
    uint64_t bytes, address, shift; /* shift: offset of this buffer's first byte in handle */
    uint64_t allocated;             /* as counted */
    enum rf_category category;
    uint8_t *map;
    struct rf_buffer_view *views; /* made on first use; guarded by device->memory_lock */
};
#define RF_ADDRESS_ALIGNMENT 256 /* of every buffer */
/* A buffer without a handle of its own yet: only its allocation; zeroed if it is mapped. */
int rf_buffer_make(struct rf_device *device, uint64_t bytes, enum rf_memory memory,
                   enum rf_category category, struct rf_buffer **out);
void rf_buffer_free(struct rf_buffer *buffer);
VkBufferUsageFlags rf_buffer_usage(const struct rf_device *device);
uint64_t rf_buffer_ask_address(const struct rf_buffer *buffer);

/* ---- views.c --------------------------------------------------------------------------------- */

int rf_views_open(struct rf_device *device);
void rf_views_close(struct rf_device *device);
void rf_views_release(struct rf_buffer *buffer);
struct rf_kernel;
int rf_views_bind(struct rf_device *device, VkCommandBuffer commands,
                  const struct rf_kernel *kernel, const struct rf_view *views, uint32_t count);

/* The memory type for a purpose, and whether to map it. `hide`: never map it. */
uint32_t rf_memory_type(const VkPhysicalDeviceMemoryProperties *memory, enum rf_device_kind kind,
                        enum rf_memory purpose, bool hide, bool *mapped);
void rf_memory_choose(struct rf_device *device);

/* ---- staging.c ------------------------------------------------------------------------------- */

/* The size of the staging buffers for reading and writing unmapped buffers; made on first use. */
#define RF_STAGING_BYTES ((uint64_t)8 << 20)
struct rf_device_staging {
    pthread_mutex_t lock;
    struct rf_stream *stream;
    struct rf_buffer *half[2];
};
void rf_staging_fini(struct rf_device *device);
/* Blocking. The caller has checked the range. */
int rf_staging_write(struct rf_buffer *buffer, uint64_t offset, const void *src, uint64_t bytes);
int rf_staging_read(struct rf_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes);
int rf_staging_zero(struct rf_buffer *buffer);

/* ---- timeline.c ------------------------------------------------------------------------------ */

/* A host timeline (created by the user, signalled by the host, no semaphore) or a stream's timeline
 * (a Vulkan timeline semaphore, signalled only by submissions). */
struct rf_timeline {
    struct rf_device *device;
    VkSemaphore semaphore;         /* VK_NULL_HANDLE: a host timeline */
    atomic_uint_fast64_t reached;  /* known to be reached */
    uint64_t submitted;            /* streams: submitted to the queue; guarded by device->lock */
    struct rf_timeline *next_free; /* device->free_timelines */
};
int rf_timeline_acquire(struct rf_device *device, struct rf_timeline **out);
void rf_timeline_release(struct rf_timeline *timeline);
/* Asks the driver. Returns true if value has been reached. */
bool rf_timeline_poll(struct rf_timeline *timeline, uint64_t value);

/* ---- profile.c ------------------------------------------------------------------------------- */

#define RF_LABEL_DEPTH 16
#define RF_REGION_CAPACITY 512
struct rf_region {
    char name[RF_NAME_BYTES];
    bool closed;
};
struct rf_regions {
    VkQueryPool queries; /* 2 * RF_REGION_CAPACITY; VK_NULL_HANDLE without profile */
    struct rf_region *list;
    uint32_t count;
    uint32_t open[RF_LABEL_DEPTH]; /* region of each open label; UINT32_MAX: not timed */
};
struct rf_submission;
int rf_profile_open(struct rf_device *device); /* calibrate.c */
bool rf_profile_times(const struct rf_device *device);
int rf_profile_prepare(struct rf_submission *submission);
void rf_profile_release(struct rf_submission *submission);
/* Begins the stream's open labels in a new command buffer; they end with it. */
void rf_profile_begin(struct rf_submission *submission);
void rf_profile_end(struct rf_submission *submission);
/* Turns the timestamps of a finished submission into trace events. */
void rf_profile_collect(const struct rf_submission *submission);
uint64_t rf_profile_ns(const struct rf_device *device, uint64_t ticks);

/* ---- track.c: which ranges were touched since the last barrier ------------------------------- */

#define RF_TRACK_CAPACITY 64
struct rf_track {
    uint32_t count;
    bool everything;
    struct rf_range touched[RF_TRACK_CAPACITY];
    bool viewed, written; /* a launch with texel views; a copy, a fill or storage buffers */
};
/* True if a launch with these ranges must not run before the tracked work has finished, or if there
 * is no space to track it. */
bool rf_track_conflicts(const struct rf_track *track, const struct rf_range *ranges,
                        uint32_t count);
void rf_track_add(struct rf_track *track, const struct rf_range *ranges, uint32_t count);

/* ---- check.c: independent proof that the barriers suffice ------------------------------------ */

struct rf_check;
int rf_check_create(struct rf_check **out);
void rf_check_destroy(struct rf_check *check);
int rf_check_command(struct rf_check *check, const char *name, const struct rf_range *ranges,
                     uint32_t count);
void rf_check_barrier(struct rf_check *check);
/* Checks everything recorded since the last call, and clears it. */
int rf_check_verify(struct rf_check *check, const char *stream, uint64_t *conflicts);

/* ---- check_ranges.c: whether launches keep to the ranges that they declare ------------------- */

/* A mode for tests. device->ranges is NULL if it is off. */
int rf_ranges_open(struct rf_device *device);
void rf_ranges_close(struct rf_device *device);
int rf_ranges_add_buffer(const struct rf_buffer *buffer);
void rf_ranges_remove_buffer(const struct rf_buffer *buffer);
/* Runs a command alone, and a launch several times. Blocks. RF_EDEVICE: it reads or writes
 * undeclared memory. */
struct rf_command;
int rf_ranges_run(struct rf_stream *stream, const struct rf_command *command);

/* ---- submit.c -------------------------------------------------------------------------------- */

/* A command buffer and its state. Its stream owns and recycles it. */
struct rf_submission {
    struct rf_submission *next;    /* in the stream's list */
    struct rf_submission *pending; /* in device->pending; guarded by device->lock */
    struct rf_stream *stream;
    VkCommandPool pool;
    VkCommandBuffer commands;
    bool recorded;                       /* has commands; otherwise it only waits and signals */
    const struct rf_submission *replays; /* runs the commands of this one instead of its own; or
                                          * NULL */
    struct rf_point *waits;
    uint32_t wait_count, wait_capacity;
    uint64_t value; /* the value that it signals on the stream's timeline */
    struct rf_regions regions;
};
/* Submits all work that can run and holds back the rest. Does not block. */
int rf_submit(struct rf_submission *submission);
int rf_submit_open(struct rf_device *device);
void rf_submit_close(struct rf_device *device);
/* Both with device->lock held: */
void rf_submit_wake(struct rf_device *device); /* a host timeline has advanced */
void rf_submit_forget(struct rf_device *device, struct rf_timeline *timeline);

/* ---- failure.c ------------------------------------------------------------------------------- */

/* The device can no longer be used. Keeps the first such error and wakes all waiting threads. */
int rf_device_failed(struct rf_device *device, VkResult result, const char *what);
/* The same for this thread's last error. device->lock is held. */
void rf_device_fail_locked(struct rf_device *device, int status);
/* Returns 0, or the error with which the device failed. */
int rf_device_check(struct rf_device *device);

/* ---- stream.c -------------------------------------------------------------------------------- */

struct rf_stream {
    struct rf_device *device;
    char name[RF_NAME_BYTES];
    VkQueue queue;
    struct rf_timeline *timeline;
    uint64_t value;                                   /* last value given to a submission */
    struct rf_submission *recording;                  /* NULL between submissions */
    struct rf_recording *keeping;                     /* between rf_record_begin and _end */
    struct rf_submission *in_flight, *in_flight_tail; /* oldest first */
    struct rf_submission *free;
    struct rf_point *waits; /* for the next submission */
    uint32_t wait_count, wait_capacity;
    VkPipeline bound;
    struct rf_track track;
    struct rf_check *check; /* NULL when the checker is off */
    uint64_t barriers, skip_barrier, conflicts;
    uint64_t recorded; /* command buffers begun so far */
    bool repeats;      /* rf_stream_repeats */
    char labels[RF_LABEL_DEPTH][RF_NAME_BYTES];
    uint32_t label_depth;
    uint64_t held_back_mark; /* of the last pass over device->pending that held it back */
};

/* Submits the command buffer of a recording. */
int rf_stream_send_again(struct rf_stream *stream, const struct rf_submission *kept);
/* Discards the open recording, if there is one. */
void rf_stream_give_up(struct rf_stream *stream);
/* Waits until the stream has reached the value, or its device is idle after a failure. */
void rf_stream_finish(struct rf_stream *stream, uint64_t value);

/* ---- commands.c ------------------------------------------------------------------------------ */

struct rf_command;
/* Records into the stream's command buffer, after a barrier if it conflicts with earlier commands.
 */
int rf_stream_record(struct rf_stream *stream, const struct rf_command *command);
/* Makes sure that a command buffer is being recorded. */
int rf_stream_record_nothing(struct rf_stream *stream);
/* Ends the open command buffer, which then belongs to the caller. */
int rf_stream_end(struct rf_stream *stream);

/* ---- submission.c ---------------------------------------------------------------------------- */

int rf_submission_create(struct rf_stream *stream, struct rf_submission **out);
void rf_submission_destroy(struct rf_submission *submission);
/* rf_submission_take: an unused submission, or a new one. rf_submission_give_back: returns one that
 * was not submitted. */
int rf_submission_take(struct rf_stream *stream, struct rf_submission **out);
void rf_submission_give_back(struct rf_stream *stream, struct rf_submission *submission);
int rf_submission_reserve_waits(struct rf_stream *stream, struct rf_point **waits,
                                uint32_t *capacity, uint32_t wanted);
/* Recycles submissions whose work has finished. */
void rf_stream_reap(struct rf_stream *stream);

/* ---- recording.c ----------------------------------------------------------------------------- */

/* A launch, copy or fill. */
struct rf_command {
    const char *name;
    const struct rf_kernel *kernel; /* NULL: a copy or fill */
    const void *push;
    uint32_t push_bytes, word; /* word: of a fill */
    uint32_t groups[3];
    const struct rf_buffer *src, *dst; /* of a copy; a fill has no src */
    VkBufferCopy region;
    const struct rf_range *ranges;
    uint32_t range_count, view_count;
    const struct rf_view *views;
};
int rf_recording_note(struct rf_recording *recording, const struct rf_command *command);
struct rf_submission *rf_recording_submission(const struct rf_recording *recording);
void rf_recording_free(struct rf_recording *recording);
/* Called before a buffer or a kernel is destroyed: recordings that need it become invalid. */
void rf_recordings_lose_buffer(struct rf_device *device, const struct rf_buffer *buffer);
void rf_recordings_lose_kernel(struct rf_device *device, const struct rf_kernel *kernel);

/* ---- kernel.c, spirv.c, cache.c -------------------------------------------------------------- */

struct rf_kernel {
    struct rf_core *core;
    struct rf_device *device; /* NULL: it is in the core's table, for every device of the core */
    char name[RF_NAME_BYTES];
    VkPipelineLayout layout;
    VkPipeline pipeline;
    uint32_t push_bytes;
    bool views;    /* reads through texel views */
    bool captured; /* the driver has kept its statistics */
};
/* rf_kernel_create of SPIR-V, with captured statistics if the device has them. */
int rf_kernel_create_captured(struct rf_device *device, const struct rf_kernel_desc *desc,
                              struct rf_kernel **out);
struct rf_kernel_slot;
struct rf_core;
struct rf_kernel_table {
    pthread_mutex_t lock;
    pthread_cond_t compiled;
    struct rf_kernel_slot **slots;
    uint32_t count, capacity;
};
int rf_kernels_open(struct rf_core *core);
void rf_kernels_close(struct rf_core *core);
void rf_cache_load(struct rf_device *device);
void rf_cache_save(struct rf_device *device);
/* RF_ENOTSUP names a capability that the module declares and the device lacks. */
int rf_spirv_check(const struct rf_device *device, const struct rf_kernel_desc *desc);
/* Whether a checked module declares a capability. */
#define RF_SPIRV_SAMPLED_BUFFER 46 /* reads through texel views */
#define RF_SPIRV_COOPERATIVE_MATRIX 6022
bool rf_spirv_declares(const struct rf_kernel_desc *desc, uint32_t capability);

/* ---- counting.c ------------------------------------------------------------------------------ */

/* A device without Vulkan: every call of a driver checks device->counting first. */
#define RF_COUNTING_BYTES (UINT64_C(1) << 56) /* of a buffer */
int rf_counting_allocate(struct rf_buffer *buffer, enum rf_memory memory);
/* Counts a command of which only the ranges are known. */
void rf_counting_ranges(struct rf_stream *stream, const struct rf_range *ranges, uint32_t count);

/* ---- core.c: what devices of one process share ------------------------------------------------
 */

struct rf_core {
    struct rf_core *next;       /* in the list of those that may be shared */
    struct rf_device_info info; /* of the device that opened it */
    pid_t process;
    int devices;

    struct rf_vk_instance instance;
    struct rf_vk_functions vk;
    VkPhysicalDevice physical;
    VkDevice handle;
    pthread_mutex_t queue_lock;
    VkQueue queues[RF_MAX_QUEUES]; /* used under queue_lock */
    uint32_t queue_count;
    atomic_uint next_queue;

    struct rf_kernel_table kernels;
    VkPipelineCache cache;
    VkDescriptorSetLayout view_layout; /* VK_NULL_HANDLE without views */
    uint32_t cache_hash;
    uint64_t cache_bytes;
    bool has_statistics; /* the driver can be asked for statistics of a kernel */
};
/* Chooses the hardware, fills device->info and caps, and sets device->core to a core that another
 * device of the process has opened, or to a new one. */
int rf_core_open(struct rf_device *device, const char *select);
/* The same without Vulkan, for a counting device. */
int rf_core_open_counting(struct rf_device *device);
/* Called after everything else of the device is destroyed. */
void rf_core_close(struct rf_device *device);
/* core_queue.c: queue calls that Vulkan requires to be serialised. */
VkResult rf_core_submit(struct rf_core *core, VkQueue queue, const VkSubmitInfo *info);
VkResult rf_core_wait_idle(struct rf_core *core);

/* ---- device.c -------------------------------------------------------------------------------- */

/* core_create.c: vkCreateDevice for device->core, with all features that the library uses. */
int rf_core_create(struct rf_device *device);

struct rf_device {
    struct rf_device_info info;
    struct rf_device_caps caps;
    uint32_t cpu; /* rf_cpu_of(&info) */
    struct rf_device_opts opts;
    struct rf_core *core;

    /* Submissions and timelines. */
    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the submission thread */
    pthread_cond_t changed; /* for waiting threads: submitted, signalled or failed */
    uint32_t waiters;
    struct rf_submission *pending, **pending_tail; /* held back, oldest first */
    uint64_t pass;
    bool foreign_waits; /* a held-back submission waits for another device's timeline */
    bool stop, submit_opened, thread_started, fail_next;
    pthread_t thread;
    struct rf_timeline *free_timelines;
    atomic_bool failed;
    struct rf_error failure;

    /* Memory. */
    pthread_mutex_t memory_lock;
    struct rf_memory_stats stats;
    uint32_t memory_type[2];
    bool memory_mapped[2];
    struct rf_device_staging staging;
    struct rf_recording *recordings; /* guarded by memory_lock */
    struct rf_ranges *ranges;        /* NULL: the ranges of launches are not checked */

    /* Counting: guarded by memory_lock. */
    bool counting; /* nothing runs, and there is no driver */
    struct rf_work counted;
    uint64_t next_address;

    /* Kernels. */
    bool teams; /* for tests: teams on a CPU device */
    bool (*fake_figures)(void *user, const struct rf_kernel_desc *desc,
                         struct rf_kernel_figures *figures); /* tests */
    void *fake_user;

    /* Profile: host time = timestamp * period + offset. */
    int64_t timestamp_offset_ns;
};

#endif
