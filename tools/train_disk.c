/* SPDX-License-Identifier: MIT
 *
 * Whether the disk of `ringforge train --offload optimizer=disk` is fast enough: measured in the
 * second and third step, because the first one compiles kernels.
 */
#include "trainer.h"

enum { FIRST_MEASURED = 2, LAST_MEASURED = 3 };

int train_disk_step(struct trainer *t, const struct rf_step_stats *stats)
{
    const double most = t->o->disk_slowdown;
    struct rf_bytes planned;
    char text[2][24];
    if (!t->o->disk || most == 0 || t->made < FIRST_MEASURED || t->made > LAST_MEASURED)
        return TOOL_OK;
    t->disk_s.step += 1e-9 * (double)stats->step_ns;
    t->disk_s.exposed += 1e-9 * (double)stats->exposed_disk_ns;
    t->disk_s.busy += 1e-9 * (double)stats->disk_ns;
    const double without = t->disk_s.step - t->disk_s.exposed;
    if (t->made < LAST_MEASURED || t->disk_s.step <= most * without)
        return TOOL_OK;
    rf_plan_bytes(t->plan, &planned);
    const double moved = (double)planned.disk_moved * (LAST_MEASURED - FIRST_MEASURED + 1);
    return tool_error(
        t->command,
        "the disk of --disk %s makes a step %.3g times longer, as it moves %s a step "
        "at %s/s: use a faster one, --optimizer-state 8bit, --zero on more ranks or a "
        "larger --batch, or allow it by --disk-slowdown %.3g",
        t->o->disk, t->disk_s.step / without,
        tool_bytes_text(planned.disk_moved, text[0], sizeof(text[0])),
        tool_bytes_text((uint64_t)(moved / (t->disk_s.busy > 0 ? t->disk_s.busy : 1)), text[1],
                        sizeof(text[1])),
        1.1 * t->disk_s.step / without);
}
