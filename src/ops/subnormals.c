/* SPDX-License-Identifier: MIT
 *
 * Whether a device treats subnormal numbers as 0. Found by computing with some, because drivers do
 * not report what they do if a shader demands nothing. The answer is kept for each driver.
 */
#include <float.h>
#include <pthread.h>
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../device/device.h"

enum { MOST_ANSWERS = 16, ELEMENTS = 64 };

struct answer {
    struct rf_driver_key key;
    bool flushes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct answer answers[MOST_ANSWERS];
static int answer_count;

/* Halves a subnormal number and the smallest normal one, in place: on a counting device the numbers
 * stay unchanged. */
static int halve(struct rf_device *device, struct rf_tensor numbers, bool *out)
{
    uint32_t bits[ELEMENTS];
    float x[ELEMENTS];
    struct rf_stream *stream;
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = i % 2 ? 1e-40f : FLT_MIN;
    RETURN_IF_ERROR(rf_tensor_write(numbers, x, sizeof(x)));
    RETURN_IF_ERROR(rf_stream_create(device, "subnormals", &stream));
    int rc = rf_scale(stream, numbers, numbers, 0.5f);
    if (rc == 0)
        rc = rf_stream_wait(stream);
    rf_stream_destroy(stream);
    if (rc == 0)
        rc = rf_tensor_read(numbers, bits, sizeof(bits));
    for (int i = 0; rc == 0 && i < ELEMENTS; i++)
        *out |= bits[i] << 1 == 0;
    return rc;
}

static int ask(struct rf_device *device, bool *out)
{
    struct rf_buffer *buffer;
    struct rf_tensor numbers;
    bool flushes = false;
    RETURN_IF_ERROR(rf_buffer_create(device, ELEMENTS * sizeof(float), RF_MEMORY_DEVICE,
                                     RF_CATEGORY_OTHER, &buffer));
    int rc = rf_tensor_view(buffer, 0, rf_shape1(ELEMENTS), RF_F32, &numbers);
    if (rc == 0)
        rc = halve(device, numbers, &flushes);
    rf_buffer_destroy(buffer);
    if (rc == 0)
        *out = flushes;
    return rc;
}

/* Called with the lock held. */
static int find_or_ask(struct rf_device *device, bool *out)
{
    const struct rf_driver_key key = rf_driver_key_of(device);
    for (int i = 0; i < answer_count; i++)
        if (rf_driver_keys_equal(&answers[i].key, &key)) {
            *out = answers[i].flushes;
            return 0;
        }
    RETURN_IF_ERROR(ask(device, out));
    if (answer_count < MOST_ANSWERS)
        answers[answer_count++] = (struct answer){.key = key, .flushes = *out};
    return 0;
}

int rf_device_flushes_subnormals(struct rf_device *device, bool *out)
{
    long forced = 0;
    if (!device || !out)
        return rf_fail(RF_EINVAL, "flushes_subnormals: the device or out is NULL");
    const char *text = rf_env("RF_FLUSH_SUBNORMALS");
    if (text && strcmp(text, "auto") != 0) {
        RETURN_IF_ERROR(rf_env_int("RF_FLUSH_SUBNORMALS", 0, &forced));
        *out = forced != 0;
        return 0;
    }
    if (rf_device_counts(device)) {
        *out = false;
        return 0;
    }
    pthread_mutex_lock(&lock);
    const int rc = find_or_ask(device, out);
    pthread_mutex_unlock(&lock);
    return rc;
}
