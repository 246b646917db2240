/* SPDX-License-Identifier: MIT
 *
 * Loads Vulkan at run time, creates instances, sets up the validation layer, and translates
 * VkResult. A program that never opens a device needs no Vulkan on the machine.
 */
#include <pthread.h>

#define VOLK_IMPLEMENTATION
#include "vulkan.h"

#include "../base/base.h"

#define VALIDATION_LAYER "VK_LAYER_KHRONOS_validation"
/* Before this version (Debian 12 has 1.3.239) the layer keeps the labels of all command buffers of
 * an instance in one hash table, and removes the labels of freed ones without its lock. Two threads
 * that free command buffers, each from its own pool, crash in it ("layers: Fix debug label race
 * conditions", February 2023). Without labels the table stays empty, and nothing is removed. */
#define LAYER_OF_SAFE_LABELS VK_MAKE_API_VERSION(0, 1, 3, 242)
#define INSTALL_HINT                                                                               \
    "install a Vulkan driver (Debian, Ubuntu: apt install mesa-vulkan-drivers, which also has a "  \
    "driver for the CPU; NVIDIA: the vendor's driver)"

/* volk keeps the loader's entry points in globals, which are the same for every instance. */
static pthread_once_t loader_once = PTHREAD_ONCE_INIT;
static VkResult loader_result;

static void load_once(void)
{
    loader_result = volkInitialize();
}

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT types,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *user)
{
    struct rf_vk_instance *instance = user;
    /* The loader's own messages about other drivers of the machine have the type GENERAL. */
    if (types & VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT) {
        atomic_fetch_add(&instance->messages, 1);
        rf_log("device", 0, "validation: %s", data->pMessage);
    }
    return VK_FALSE;
}

static bool has_extension(const char *layer, const char *name)
{
    VkExtensionProperties list[128];
    uint32_t count = 128;
    if (vkEnumerateInstanceExtensionProperties(layer, &count, list) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].extensionName, name) == 0)
            return true;
    }
    return false;
}

/* The version of Vulkan that the layer was written for; 0: no such layer. */
static uint32_t layer_version(const char *name)
{
    VkLayerProperties list[64];
    uint32_t count = 64;
    if (vkEnumerateInstanceLayerProperties(&count, list) < 0)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].layerName, name) == 0)
            return list[i].specVersion;
    }
    return 0;
}

static int load_instance_functions(struct rf_vk_instance *instance)
{
    const char *missing = NULL;
#define LOAD(name)                                                                                 \
    instance->name = (PFN_vk##name)vkGetInstanceProcAddr(instance->handle, "vk" #name);
#define REQUIRE(name)                                                                              \
    if (!instance->name)                                                                           \
        missing = "vk" #name;
    RF_INSTANCE_FUNCTIONS(LOAD)
    RF_INSTANCE_FUNCTIONS_OPTIONAL(LOAD)
    RF_INSTANCE_FUNCTIONS(REQUIRE)
#undef LOAD
#undef REQUIRE
    if (missing)
        return rf_fail(RF_ENODEV, "the Vulkan loader of this machine lacks %s", missing);
    return 0;
}

static int validation_wanted(bool *out)
{
    const char *text = rf_env("RF_VALIDATION");
    *out = text && text[0] && strcmp(text, "0") != 0;
    if (*out && layer_version(VALIDATION_LAYER) == 0)
        return rf_fail(RF_ENOTSUP,
                       "RF_VALIDATION is set, but %s is not installed (Debian, Ubuntu: "
                       "apt install vulkan-validationlayers)",
                       VALIDATION_LAYER);
    return 0;
}

int rf_vk_instance_init(struct rf_vk_instance *instance)
{
    memset(instance, 0, sizeof(*instance));
    pthread_once(&loader_once, load_once);
    if (loader_result != VK_SUCCESS)
        return rf_fail(RF_ENODEV, "no Vulkan loader (libvulkan.so.1) on this machine: %s",
                       INSTALL_HINT);
    uint32_t version = volkGetInstanceVersion();
    if (version < VK_API_VERSION_1_2)
        return rf_fail(RF_ENODEV, "the Vulkan loader is version %u.%u; 1.2 is needed: %s",
                       VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version), INSTALL_HINT);
    bool validate;
    RETURN_IF_ERROR(validation_wanted(&validate));

    const char *layers[1] = {VALIDATION_LAYER};
    const char *extensions[2];
    uint32_t extension_count = 0;
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = on_message,
        .pUserData = instance};
    VkValidationFeatureEnableEXT enables[1] = {
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT features = {.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                        .pNext = &messenger,
                                        .enabledValidationFeatureCount = 1,
                                        .pEnabledValidationFeatures = enables};
    VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pEngineName = "ringforge",
        .apiVersion = version >= VK_API_VERSION_1_3 ? VK_API_VERSION_1_3 : VK_API_VERSION_1_2};
    const bool debug_utils = has_extension(NULL, VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    instance->labels =
        debug_utils && (!validate || layer_version(VALIDATION_LAYER) >= LAYER_OF_SAFE_LABELS);
    if (debug_utils)
        extensions[extension_count++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    if (validate)
        extensions[extension_count++] = VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME;
    VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                   .pNext = validate ? &features : NULL,
                                   .pApplicationInfo = &application,
                                   .enabledLayerCount = validate ? 1 : 0,
                                   .ppEnabledLayerNames = layers,
                                   .enabledExtensionCount = extension_count,
                                   .ppEnabledExtensionNames = extensions};
    VkResult result = vkCreateInstance(&create, NULL, &instance->handle);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
        return rf_fail(RF_ENODEV, "Vulkan is installed, but no driver: %s", INSTALL_HINT);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "starting Vulkan");
    int rc = load_instance_functions(instance);
    if (rc == 0 && validate && instance->CreateDebugUtilsMessengerEXT) {
        result = instance->CreateDebugUtilsMessengerEXT(instance->handle, &messenger, NULL,
                                                        &instance->messenger);
        if (result != VK_SUCCESS)
            rc = rf_vk_fail(result, "setting up the validation layer");
    }
    if (rc < 0)
        rf_vk_instance_fini(instance);
    return rc;
}

void rf_vk_instance_fini(struct rf_vk_instance *instance)
{
    if (!instance->handle)
        return;
    if (instance->messenger)
        instance->DestroyDebugUtilsMessengerEXT(instance->handle, instance->messenger, NULL);
    if (instance->DestroyInstance)
        instance->DestroyInstance(instance->handle, NULL);
    instance->handle = NULL;
}

int rf_vk_load_device(const struct rf_vk_instance *instance, VkDevice device,
                      struct rf_vk_functions *out)
{
    const char *missing = NULL;
#define LOAD(name) out->name = (PFN_vk##name)instance->GetDeviceProcAddr(device, "vk" #name);
#define REQUIRE(name)                                                                              \
    if (!out->name)                                                                                \
        missing = "vk" #name;
    RF_DEVICE_FUNCTIONS(LOAD)
    RF_DEVICE_FUNCTIONS_OPTIONAL(LOAD)
    RF_DEVICE_FUNCTIONS(REQUIRE)
#undef LOAD
#undef REQUIRE
    if (missing)
        return rf_fail(RF_ENODEV, "the Vulkan driver lacks %s", missing);
    if (!instance->labels) {
        out->CmdBeginDebugUtilsLabelEXT = NULL;
        out->CmdEndDebugUtilsLabelEXT = NULL;
    }
    return 0;
}

const char *rf_vk_result_text(VkResult result)
{
    static const struct {
        VkResult result;
        const char *text;
    } rows[] = {
        {VK_ERROR_OUT_OF_HOST_MEMORY, "the driver ran out of host memory"},
        {VK_ERROR_OUT_OF_DEVICE_MEMORY, "the device ran out of memory"},
        {VK_ERROR_INITIALIZATION_FAILED, "the driver could not be initialized"},
        {VK_ERROR_DEVICE_LOST, "the device was lost (a crashed or hung kernel, or a driver reset)"},
        {VK_ERROR_MEMORY_MAP_FAILED, "the memory could not be mapped"},
        {VK_ERROR_LAYER_NOT_PRESENT, "a Vulkan layer is not installed"},
        {VK_ERROR_EXTENSION_NOT_PRESENT, "a Vulkan extension is not offered"},
        {VK_ERROR_FEATURE_NOT_PRESENT, "a Vulkan feature is not offered"},
        {VK_ERROR_INCOMPATIBLE_DRIVER, "the driver does not support this version of Vulkan"},
        {VK_ERROR_TOO_MANY_OBJECTS, "the driver allows no more objects of this kind"},
        {VK_ERROR_INVALID_EXTERNAL_HANDLE, "the driver cannot import this memory"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].result == result)
            return rows[i].text;
    }
    return NULL;
}

int rf_vk_fail(VkResult result, const char *what)
{
    bool memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const char *text = rf_vk_result_text(result);
    if (!text)
        return rf_fail(RF_EDEVICE, "%s: the driver reported error %d", what, (int)result);
    return rf_fail(memory ? RF_ENOMEM : RF_EDEVICE, "%s: %s", what, text);
}
