/* SPDX-License-Identifier: MIT
 *
 * The variable `loop`, as Jinja2's LoopContext. Items are fetched lazily as there, one ahead only
 * if the next item is asked for, because conditions may depend on effects of the body. See
 * render.h.
 */
#include "../base/base.h"
#include "render.h"

static int take(struct rf_render *r, struct rf_loop *loop, struct rf_value *out)
{
    if (loop->rest_at < loop->rest.count) {
        *out = loop->rest.items[loop->rest_at++];
        return 1;
    }
    return loop->ended ? 0 : loop->pull(r, loop, out);
}

int rf_loop_next(struct rf_render *r, struct rf_loop *loop, struct rf_value *out)
{
    int more = 1;
    if (loop->has_after)
        *out = loop->after;
    else
        more = take(r, loop, out);
    loop->has_after = false;
    if (more <= 0)
        return more;
    loop->index++;
    loop->before = loop->current;
    loop->current = *out;
    return 1;
}

/* 1: there is a next item, in loop->after. */
static int peek(struct rf_render *r, struct rf_loop *loop)
{
    if (loop->has_after)
        return 1;
    const int more = take(r, loop, &loop->after);
    loop->has_after = more > 0;
    return more;
}

static int count(struct rf_render *r, struct rf_loop *loop)
{
    struct rf_value item;
    int more;
    if (loop->counted)
        return 0;
    loop->counted = true;
    if (!loop->node->third && rf_value_length(&loop->walk.of, &loop->length))
        return 0;
    while ((more = loop->pull(r, loop, &item)) > 0)
        RETURN_IF_ERROR(rf_list_add(r->room, &loop->rest, item));
    loop->ended = true;
    loop->length = loop->rest.count + loop->index + 1 + loop->has_after;
    return more;
}

static const char counting[] = "length revindex revindex0";
static const char attributes[] =
    "index index0 first last length revindex revindex0 depth depth0 previtem nextitem";

bool rf_loop_has(const struct rf_string *name)
{
    return rf_word_in(attributes, name);
}

int rf_loop_attribute(struct rf_render *r, struct rf_loop *loop, const struct rf_string *name,
                      struct rf_value *out)
{
    const int64_t index = (int64_t)loop->index;
    int more = 0;
    if (rf_word_in(counting, name))
        RETURN_IF_ERROR(count(r, loop));
    if (rf_word_in("last nextitem", name))
        RETURN_IF_ERROR(more = peek(r, loop));
    const int64_t length = (int64_t)loop->length;
    *out = rf_string_is(name, "index0")      ? rf_whole(index)
           : rf_string_is(name, "index")     ? rf_whole(index + 1)
           : rf_string_is(name, "first")     ? rf_bool(index == 0)
           : rf_string_is(name, "last")      ? rf_bool(more == 0)
           : rf_string_is(name, "length")    ? rf_whole(length)
           : rf_string_is(name, "revindex")  ? rf_whole(length - index)
           : rf_string_is(name, "revindex0") ? rf_whole(length - index - 1)
           : rf_string_is(name, "depth")     ? rf_whole(1)
           : rf_string_is(name, "depth0")    ? rf_whole(0)
           : rf_string_is(name, "nextitem")  ? (more > 0 ? loop->after : rf_undefined(NULL))
           : index > 0                       ? loop->before
                                             : rf_undefined(NULL); /* previtem */
    return 0;
}
