/* SPDX-License-Identifier: MIT
 *
 * The measured table of rf_matmul: the fastest path and tile on this device for products of about
 * this size. `ringforge tune` fills and saves it; the file is beside the pipeline cache, named by
 * device and driver, and is read when a device's first product is picked. The file is not trusted:
 * an unreadable line ends it, and a path that cannot run a product is skipped.
 */
#include <pthread.h>

#include "../base/base.h"
#include "matmul.h"

enum { MOST_TABLES = 16, MOST_CHOICES = 4096 };

static const struct rf_cache_lines lines = {"matmul", 1, MOST_CHOICES,
                                            "run `ringforge tune` again"};

struct table {
    struct rf_driver_key key;
    struct rf_matmul_choice *choices;
    uint32_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table tables[MOST_TABLES];
static int table_count;

int rf_matmul_class(int64_t size)
{
    int class = 0;
    while (class < 62 && ((int64_t)1 << class) < size)
        class ++;
    return class;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool is_sound(const struct rf_matmul_choice *c)
{
    bool named = strnlen(c->path, sizeof(c->path)) < sizeof(c->path) && c->path[0] &&
                 strspn(c->path, "abcdefghijklmnopqrstuvwxyz0123456789:") == strlen(c->path);
    return named && rf_is_float_type(c->type) && c->m_class >= 0 && c->m_class < 63 &&
           c->n_class >= 0 && c->n_class < 63 && c->k_class >= 0 && c->k_class < 63;
}

static bool read_type(const char *text, enum rf_dtype *type)
{
    for (int t = 0; t < RF_DTYPE_COUNT; t++)
        if (strcmp(text, rf_dtype_name((enum rf_dtype)t)) == 0) {
            *type = (enum rf_dtype)t;
            return true;
        }
    return false;
}

/* "f32 nt 9 9 9 tiled" */
static bool read_line(const char *line, struct rf_matmul_choice *c)
{
    char type[8], form[3], end;
    *c = (struct rf_matmul_choice){0};
    if (sscanf(line, "%7s %2s %d %d %d %23s %c", type, form, &c->m_class, &c->n_class, &c->k_class,
               c->path, &end) != 6)
        return false;
    c->transpose_a = form[0] == 't';
    c->transpose_b = form[1] == 't';
    return strspn(form, "nt") == 2 && read_type(type, &c->type) && is_sound(c);
}

static bool take_line(void *user, const char *line)
{
    struct table *table = user;
    return read_line(line, &table->choices[table->count]) && ++table->count;
}

static void load(struct rf_device *device, struct table *table)
{
    table->choices = rf_alloc(MOST_CHOICES * sizeof(*table->choices));
    if (table->choices && rf_cache_lines_load(device, &lines, take_line, table))
        return;
    rf_free(table->choices);
    table->choices = NULL;
    table->count = 0;
}

static void print_line(void *user, uint32_t i, FILE *file)
{
    const struct rf_matmul_choice *c = (const struct rf_matmul_choice *)user + i;
    fprintf(file, "%s %c%c %d %d %d %s\n", rf_dtype_name(c->type), c->transpose_a ? 't' : 'n',
            c->transpose_b ? 't' : 'n', c->m_class, c->n_class, c->k_class, c->path);
}

int rf_matmul_table_save(struct rf_device *device, const struct rf_matmul_choice *choices,
                         uint32_t count, char *path, size_t bytes)
{
    if (!device || (count > 0 && !choices) || count > MOST_CHOICES)
        return rf_fail(RF_EINVAL, "rf_matmul_table_save: a device and up to %d choices are needed",
                       MOST_CHOICES);
    for (uint32_t i = 0; i < count; i++)
        if (!is_sound(&choices[i]))
            return rf_fail(RF_EINVAL, "rf_matmul_table_save: choice %u is no choice", i);
    return rf_cache_lines_save(device, &lines, count, print_line, (void *)choices, path, bytes);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Called with the lock held. NULL: too many devices. */
static struct table *table_of(struct rf_device *device)
{
    const struct rf_driver_key key = rf_driver_key_of(device);
    for (int i = 0; i < table_count; i++)
        if (rf_driver_keys_equal(&tables[i].key, &key))
            return &tables[i];
    if (table_count == MOST_TABLES)
        return NULL;
    struct table *table = &tables[table_count++];
    *table = (struct table){.key = key};
    load(device, table);
    return table;
}

bool rf_matmul_tuned(const struct rf_product *p, char path[RF_MATMUL_PATH_BYTES])
{
    bool found = false;
    pthread_mutex_lock(&lock);
    struct table *table = table_of(p->device);
    if (table && table->count > 0) {
        int m = rf_matmul_class(p->m), n = rf_matmul_class(p->n), k = rf_matmul_class(p->k);
        for (uint32_t i = 0; i < table->count && !found; i++) {
            const struct rf_matmul_choice *c = &table->choices[i];
            if (c->m_class == m && c->n_class == n && c->k_class == k && c->type == p->a.dtype &&
                c->transpose_a == p->transpose_a && c->transpose_b == p->transpose_b)
                found = snprintf(path, RF_MATMUL_PATH_BYTES, "%s", c->path) > 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int rf_matmul_table_use(struct rf_device *device, const struct rf_matmul_choice *choices,
                        uint32_t count)
{
    if (!device || (count > 0 && !choices) || count > MOST_CHOICES)
        return rf_fail(RF_EINVAL, "rf_matmul_table_use: a device and up to %d choices are needed",
                       MOST_CHOICES);
    struct rf_matmul_choice *copy = rf_alloc((count + 1) * sizeof(*copy));
    if (!copy)
        return rf_fail(RF_ENOMEM, "no memory for %u choices", count);
    if (count > 0)
        memcpy(copy, choices, count * sizeof(*copy));
    pthread_mutex_lock(&lock);
    struct table *table = table_of(device);
    if (table) {
        rf_free(table->choices);
        table->choices = copy;
        table->count = count;
    }
    pthread_mutex_unlock(&lock);
    if (!table)
        rf_free(copy);
    return table ? 0 : rf_fail(RF_ENOTSUP, "tables of %d devices are in use", MOST_TABLES);
}
