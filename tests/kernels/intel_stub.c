/* SPDX-License-Identifier: MIT
 *
 * A stub of the kernel driver of an Intel GPU, as a library to preload: Mesa's ANV starts on it and
 * compiles, and submissions are dropped. INTEL_STUB_DEVICE is the PCI id in hex. Built by
 * ci/drivers.sh with the headers of libdrm-dev; no part of the library or its tests.
 *
 * It replaces libdrm's enumeration and, for the descriptors of its render node, the C library's
 * open, close, ioctl and mmap.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <i915_drm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xf86drm.h>

#define RENDER_NODE "/dev/dri/renderD128"
#define ADDRESS_SPACE ((uint64_t)1 << 48)
#define MEMORY_BYTES ((uint64_t)16 << 30)
#define MAX_DESCRIPTORS 1024

enum { SLICES = 1, SUBSLICES = 4, UNITS = 8 }; /* of the smallest GPU that ANV accepts */

static bool is_node[MAX_DESCRIPTORS]; /* descriptors of the render node */

static bool ours(int fd)
{
    return fd >= 0 && fd < MAX_DESCRIPTORS && is_node[fd];
}

static uint16_t pci_id(void)
{
    const char *hex = getenv("INTEL_STUB_DEVICE");
    return (uint16_t)strtoul(hex ? hex : "0", NULL, 16);
}

/* ---- in place of libdrm ---------------------------------------------------------------------- */

int drmGetDevice2(int fd, uint32_t flags, drmDevicePtr *out)
{
    static char node[] = RENDER_NODE;
    static char *nodes[DRM_NODE_MAX];
    static drmPciBusInfo bus = {.dev = 2};
    static drmPciDeviceInfo pci = {.vendor_id = 0x8086};
    static drmDevice device;
    nodes[DRM_NODE_RENDER] = node;
    pci.device_id = pci_id();
    device.nodes = nodes;
    device.available_nodes = 1 << DRM_NODE_RENDER;
    device.bustype = DRM_BUS_PCI;
    device.businfo.pci = &bus;
    device.deviceinfo.pci = &pci;
    *out = &device;
    return 0;
}

int drmGetDevices2(uint32_t flags, drmDevicePtr devices[], int capacity)
{
    if (devices && capacity > 0)
        drmGetDevice2(-1, flags, &devices[0]);
    return 1;
}

void drmFreeDevice(drmDevicePtr *device)
{
    *device = NULL;
}

void drmFreeDevices(drmDevicePtr devices[], int count)
{
}

drmVersionPtr drmGetVersion(int fd)
{
    static char name[] = "i915", nothing[] = "";
    static drmVersion version = {.version_major = 1,
                                 .version_minor = 6,
                                 .name = name,
                                 .name_len = sizeof(name) - 1,
                                 .date = nothing,
                                 .desc = nothing};
    return &version;
}

void drmFreeVersion(drmVersionPtr version)
{
}

int drmGetCap(int fd, uint64_t capability, uint64_t *value)
{
    *value = 1;
    return 0;
}

/* ---- the kernel driver ----------------------------------------------------------------------- */

static int parameter(int which)
{
    switch (which) {
    case I915_PARAM_CHIPSET_ID:
        return pci_id();
    case I915_PARAM_REVISION:
        return 0;
    case I915_PARAM_CS_TIMESTAMP_FREQUENCY:
        return 19200000;
    case I915_PARAM_MMAP_GTT_VERSION:
        return 4; /* mappings by offset */
    case I915_PARAM_HAS_ALIASING_PPGTT:
        return 3; /* a full address space of 48 bits */
    case I915_PARAM_SUBSLICE_TOTAL:
        return SLICES * SUBSLICES;
    case I915_PARAM_EU_TOTAL:
        return SLICES * SUBSLICES * UNITS;
    default:
        return 1; /* features: all are present */
    }
}

/* One bit for each slice, for each subslice of a slice, and for each unit of a subslice. */
static size_t topology(void *out)
{
    struct drm_i915_query_topology_info *info = out;
    *info = (struct drm_i915_query_topology_info){.max_slices = SLICES,
                                                  .max_subslices = SUBSLICES,
                                                  .max_eus_per_subslice = UNITS,
                                                  .subslice_offset = 1,
                                                  .subslice_stride = 1,
                                                  .eu_offset = 2,
                                                  .eu_stride = 1};
    info->data[0] = (1 << SLICES) - 1;
    info->data[1] = (1 << SUBSLICES) - 1;
    memset(info->data + 2, (1 << UNITS) - 1, SUBSLICES);
    return sizeof(*info) + 2 + SUBSLICES;
}

static size_t engines(void *out)
{
    struct drm_i915_query_engine_info *info = out;
    info->num_engines = 1;
    info->engines[0].engine.engine_class = I915_ENGINE_CLASS_RENDER;
    return sizeof(*info) + sizeof(info->engines[0]);
}

static size_t memory_regions(void *out)
{
    struct drm_i915_query_memory_regions *info = out;
    info->num_regions = 2;
    for (int i = 0; i < 2; i++) {
        struct drm_i915_memory_region_info *region = &info->regions[i];
        region->region.memory_class = i ? I915_MEMORY_CLASS_DEVICE : I915_MEMORY_CLASS_SYSTEM;
        region->probed_size = region->unallocated_size = MEMORY_BYTES;
        region->probed_cpu_visible_size = region->unallocated_cpu_visible_size = MEMORY_BYTES;
    }
    return sizeof(*info) + 2 * sizeof(info->regions[0]);
}

/* The kernel's protocol: length 0 asks for the length, a negative length is an error. */
static void query(struct drm_i915_query_item *item)
{
    uint64_t answer[64] = {0};
    size_t bytes = 0;
    if (item->query_id == DRM_I915_QUERY_TOPOLOGY_INFO ||
        item->query_id == DRM_I915_QUERY_GEOMETRY_SUBSLICES)
        bytes = topology(answer);
    else if (item->query_id == DRM_I915_QUERY_ENGINE_INFO)
        bytes = engines(answer);
    else if (item->query_id == DRM_I915_QUERY_MEMORY_REGIONS)
        bytes = memory_regions(answer);
    if (bytes && item->length == 0)
        item->length = (int32_t)bytes;
    else if (bytes && item->length >= (int32_t)bytes)
        memcpy((void *)(uintptr_t)item->data_ptr, answer, bytes);
    else
        item->length = -EINVAL;
}

static void queries(const struct drm_i915_query *list)
{
    struct drm_i915_query_item *items = (void *)(uintptr_t)list->items_ptr;
    for (uint32_t i = 0; i < list->num_items; i++)
        query(&items[i]);
}

/* A request without an answer succeeds, and does nothing. */
static int answer_ioctl(unsigned long request, void *arg)
{
    static uint32_t last_handle;
    switch (_IOC_NR(request)) {
    case DRM_COMMAND_BASE + DRM_I915_GETPARAM: {
        const struct drm_i915_getparam *asked = arg;
        *asked->value = parameter(asked->param);
        break;
    }
    case DRM_COMMAND_BASE + DRM_I915_QUERY:
        queries(arg);
        break;
    case DRM_COMMAND_BASE + DRM_I915_GEM_CREATE:
        ((struct drm_i915_gem_create *)arg)->handle = ++last_handle;
        break;
    case DRM_COMMAND_BASE + DRM_I915_GEM_CREATE_EXT:
        ((struct drm_i915_gem_create_ext *)arg)->handle = ++last_handle;
        break;
    case DRM_COMMAND_BASE + DRM_I915_GEM_USERPTR:
        ((struct drm_i915_gem_userptr *)arg)->handle = ++last_handle;
        break;
    case DRM_COMMAND_BASE + DRM_I915_GEM_CONTEXT_CREATE:
        ((struct drm_i915_gem_context_create *)arg)->ctx_id = 1;
        break;
    case DRM_COMMAND_BASE + DRM_I915_GEM_CONTEXT_GETPARAM: {
        struct drm_i915_gem_context_param *asked = arg;
        asked->value = asked->param == I915_CONTEXT_PARAM_GTT_SIZE ? ADDRESS_SPACE : 0;
        break;
    }
    case DRM_COMMAND_BASE + DRM_I915_GEM_GET_APERTURE: {
        struct drm_i915_gem_get_aperture *size = arg;
        size->aper_size = size->aper_available_size = ADDRESS_SPACE;
        break;
    }
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_CREATE):
        ((struct drm_syncobj_create *)arg)->handle = 1;
        break;
    case _IOC_NR(DRM_IOCTL_GET_CAP):
        ((struct drm_get_cap *)arg)->value = 1;
        break;
    }
    return 0;
}

/* ---- in place of the C library --------------------------------------------------------------- */

/* REAL(NAME): the function that this one replaces. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *arg = va_arg(list, void *);
    va_end(list);
    if (ours(fd) && _IOC_TYPE(request) == DRM_IOCTL_BASE)
        return answer_ioctl(request, arg);
    return REAL(ioctl)(fd, request, arg);
}

int drmIoctl(int fd, unsigned long request, void *arg)
{
    return ioctl(fd, request, arg);
}

int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;
    va_end(list);
    if (strcmp(path, RENDER_NODE) != 0)
        return REAL(open64)(path, flags, mode);
    const int fd = REAL(open64)("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fd < MAX_DESCRIPTORS)
        is_node[fd] = true;
    return fd;
}

int open(const char *path, int flags, ...) __attribute__((alias("open64")));

int close(int fd)
{
    if (ours(fd))
        is_node[fd] = false;
    return REAL(close)(fd);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    if (!ours(fd))
        return REAL(mmap64)(address, bytes, protection, flags, fd, offset);
    return REAL(mmap64)(address, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap64")));
