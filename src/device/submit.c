/* SPDX-License-Identifier: MIT
 *
 * Submits work to the queue as late as possible: only when everything that it waits for has been
 * signalled or is on a queue itself, because a waiting queue blocks everything after it. The
 * caller's thread submits work that can run at once, under the device's lock. Other work is held
 * back for the device's submission thread. The order within a stream is kept.
 */
#include <errno.h>
#include <ringforge/ringforge.h>

#include "internal.h"

/* How often the thread polls timelines of other devices, which cannot wake it. */
#define FOREIGN_POLL_NS 100000

/* Another device's timeline: 1 reached, 0 not yet, or the error of a device that has failed. Takes
 * no lock, because this device's lock is held. */
static int ask_foreign(struct rf_point wait, const struct rf_stream *stream)
{
    struct rf_device *other = wait.timeline->device;
    uint64_t now = atomic_load(&wait.timeline->reached);
    VkResult result = VK_SUCCESS;
    if (now < wait.value && wait.timeline->semaphore)
        result = other->core->vk.GetSemaphoreCounterValue(other->core->handle,
                                                          wait.timeline->semaphore, &now);
    if (result == VK_SUCCESS && now >= wait.value)
        return 1;
    if (result != VK_SUCCESS || atomic_load(&other->failed))
        return rf_fail(RF_EDEVICE, "stream %s waits for work on %s, which failed", stream->name,
                       other->info.name);
    return 0;
}

/* Removes the reached waits. 1: the device may wait for the others; 0: not yet. */
static int can_run(struct rf_device *device, struct rf_submission *submission)
{
    uint32_t kept = 0;
    int ready = 1;
    for (uint32_t i = 0; i < submission->wait_count; i++) {
        struct rf_point wait = submission->waits[i];
        if (wait.timeline->device != device) {
            int there = ask_foreign(wait, submission->stream);
            if (there < 0)
                return there;
            if (there)
                continue;
            device->foreign_waits = true;
            ready = 0;
        } else if (atomic_load(&wait.timeline->reached) >= wait.value) {
            continue;
        } else if (!wait.timeline->semaphore || wait.timeline->submitted < wait.value) {
            ready = 0;
        }
        submission->waits[kept++] = wait;
    }
    submission->wait_count = kept;
    return ready;
}

/* Once the queue has the last batch, the work may have finished. The stream's owner may then reuse
 * the submission without a lock, so it must not be read afterwards. */
static VkResult queue_submit(struct rf_device *device, const struct rf_submission *submission)
{
    enum { MAX_WAITS = 16 };
    VkSemaphore semaphores[MAX_WAITS];
    uint64_t values[MAX_WAITS];
    VkPipelineStageFlags stages[MAX_WAITS];
    const struct rf_submission *content = submission->replays ? submission->replays : submission;
    const VkQueue queue = submission->stream->queue;
    const VkSemaphore signal = submission->stream->timeline->semaphore;
    const uint64_t value = submission->value;
    const uint32_t count = submission->wait_count;
    uint32_t waits = 0, next = 0;
    bool last = false;
    VkResult result = VK_SUCCESS;
    /* If there are more waits than fit, empty batches with the other waits are submitted first:
     * later work on the queue runs after them. */
    do {
        for (waits = 0; waits < MAX_WAITS && next < count; waits++, next++) {
            semaphores[waits] = submission->waits[next].timeline->semaphore;
            values[waits] = submission->waits[next].value;
            stages[waits] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
        }
        last = next == count;
        VkTimelineSemaphoreSubmitInfo timeline = {
            .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
            .waitSemaphoreValueCount = waits,
            .pWaitSemaphoreValues = values,
            .signalSemaphoreValueCount = last ? 1 : 0,
            .pSignalSemaphoreValues = &value};
        VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = &timeline,
                             .waitSemaphoreCount = waits,
                             .pWaitSemaphores = semaphores,
                             .pWaitDstStageMask = stages,
                             .commandBufferCount = last && submission->recorded ? 1 : 0,
                             .pCommandBuffers = &content->commands,
                             .signalSemaphoreCount = last ? 1 : 0,
                             .pSignalSemaphores = &signal};
        result = rf_core_submit(device->core, queue, &info);
    } while (result == VK_SUCCESS && !last);
    return result;
}

/* Submits a submission that can run and removes it from the list, at *link. 1: submitted; 0: not
 * yet; or the error of the failed device. */
static int hand_over(struct rf_device *device, struct rf_submission **link)
{
    struct rf_submission *submission = *link;
    struct rf_timeline *timeline = submission->stream->timeline;
    const uint64_t value = submission->value;
    int ready = can_run(device, submission);
    if (ready <= 0)
        return ready;
    *link = submission->pending;
    if (!*link)
        device->pending_tail = link;
    submission->pending = NULL;
    VkResult result = device->fail_next ? VK_ERROR_DEVICE_LOST : queue_submit(device, submission);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "handing work to the device");
    timeline->submitted = value;
    return 1;
}

/* Submits all work that can run. device->lock is held. Returns the error of a failed device. */
static int pump(struct rf_device *device)
{
    bool again = true;
    while (again) {
        again = false;
        device->foreign_waits = false;
        uint64_t pass = ++device->pass;
        for (struct rf_submission **link = &device->pending; *link;) {
            struct rf_submission *s = *link;
            int rc = s->stream->held_back_mark == pass ? 0 : hand_over(device, link);
            if (rc < 0) {
                rf_device_fail_locked(device, rc);
                return rc;
            }
            if (rc == 0) {
                s->stream->held_back_mark = pass; /* later submissions of the stream stay, too */
                link = &s->pending;
                continue;
            }
            again = device->pending != NULL; /* an earlier one may have waited for this */
        }
    }
    if (device->waiters)
        pthread_cond_broadcast(&device->changed);
    return 0;
}

int rf_submit(struct rf_submission *submission)
{
    struct rf_device *device = submission->stream->device;
    RETURN_IF_ERROR(rf_device_check(device));
    pthread_mutex_lock(&device->lock);
    submission->pending = NULL;
    *device->pending_tail = submission;
    device->pending_tail = &submission->pending;
    int rc = pump(device);
    if (device->foreign_waits)
        pthread_cond_signal(&device->work);
    pthread_mutex_unlock(&device->lock);
    return rc;
}

void rf_submit_wake(struct rf_device *device)
{
    if (device->pending)
        pthread_cond_signal(&device->work);
    if (device->waiters)
        pthread_cond_broadcast(&device->changed);
}

void rf_submit_forget(struct rf_device *device, struct rf_timeline *timeline)
{
    for (struct rf_submission *s = device->pending; s; s = s->pending) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < s->wait_count; i++) {
            if (s->waits[i].timeline != timeline)
                s->waits[kept++] = s->waits[i];
            else if (atomic_load(&timeline->reached) < s->waits[i].value)
                rf_log("device", 0,
                       "a timeline was destroyed while stream %s waits for it; the stream no "
                       "longer waits",
                       s->stream->name);
        }
        s->wait_count = kept;
    }
    rf_submit_wake(device);
}

static void *submission_thread(void *argument)
{
    struct rf_device *device = argument;
    pthread_mutex_lock(&device->lock);
    while (!device->stop) {
        if (device->pending)
            pump(device); /* its error is kept in the device */
        if (device->stop)
            break;
        const bool polls = device->pending && device->foreign_waits;
        rf_cond_wait(&device->work, &device->lock,
                     polls ? rf_now_ns() + FOREIGN_POLL_NS : UINT64_MAX);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

int rf_submit_open(struct rf_device *device)
{
    device->pending_tail = &device->pending;
    pthread_mutex_init(&device->lock, NULL);
    rf_cond_init(&device->work);
    rf_cond_init(&device->changed);
    device->submit_opened = true;
    if (device->counting)
        return 0;
    int error = pthread_create(&device->thread, NULL, submission_thread, device);
    if (error)
        return rf_fail(RF_ENOMEM, "no thread for the device's submissions: %s", strerror(error));
    device->thread_started = true;
    return 0;
}

void rf_submit_close(struct rf_device *device)
{
    if (device->thread_started) {
        pthread_mutex_lock(&device->lock);
        device->stop = true;
        pthread_cond_signal(&device->work);
        pthread_mutex_unlock(&device->lock);
        pthread_join(device->thread, NULL);
    }
    pthread_cond_destroy(&device->work);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
}

void rf_device_fail_next_submit(struct rf_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->fail_next = true;
    pthread_mutex_unlock(&device->lock);
}
