/* SPDX-License-Identifier: MIT
 *
 * The settings that must be alike on the ranks of a job, as the lines that rf_comm_check_terms and
 * join listeners compare: a line for each option of the table except those that belong to one rank,
 * and the contents of the files that they read. Called by ranks_agree.c and train.
 */
#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "tool.h"

enum { BLOCK = 64 << 10, BLOCKS = 64, WHOLE = 16 << 20, MOST_FILES = 1024 };

/* A line contains no line break. */
static void write_text(FILE *to, const char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text) || *text == '\\')
            fprintf(to, "\\x%02x", (unsigned char)*text);
        else
            fputc(*text, to);
}

static void write_option(FILE *to, const struct tool_option *o)
{
    char text[2048];
    if (o->ranks == TOOL_GIVEN)
        snprintf(text, sizeof(text), "%s", tool_option_is_on(o) ? "given" : "not given");
    else
        tool_option_text(o, text, sizeof(text));
    fprintf(to, "--%s=", o->name);
    write_text(to, text);
    fputc('\n', to);
}

int tool_terms(const struct tool_command *command, const struct tool_option *table, bool of_job,
               char **out)
{
    size_t bytes = 0;
    *out = NULL;
    FILE *to = open_memstream(out, &bytes);
    if (!to)
        return tool_error(command, "out of memory");
    for (const struct tool_option *o = table; o->name; o++)
        if (!o->operand && o->of_job == of_job &&
            (o->ranks == TOOL_ALIKE || o->ranks == TOOL_GIVEN))
            write_option(to, o);
    return fclose(to) == 0 ? TOOL_OK : tool_error(command, "out of memory");
}

int tool_terms_add(const struct tool_command *command, char **terms, const char *name,
                   const char *value, uint64_t hash)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return tool_error(command, "out of memory");
    fprintf(to, "%s--%s=", *terms ? *terms : "", name);
    write_text(to, value);
    if (hash)
        fprintf(to, "\t%016llx", (unsigned long long)hash);
    fputc('\n', to);
    if (fclose(to) != 0)
        return tool_error(command, "out of memory");
    free(*terms);
    *terms = text;
    return TOOL_OK;
}

/* ---- contents of files ------------------------------------------------------------------------
 */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (const uint8_t *at = data; bytes > 0; at++, bytes--)
        hash = (hash ^ *at) * 1099511628211u; /* FNV-1a */
    return hash;
}

struct content {
    uint64_t hash, bytes;
    int files;
};

/* All of a small file; for a large one blocks all over it, as weights that were trained further
 * differ everywhere. */
static bool add_file(const char *path, struct content *to)
{
    struct stat about;
    static const uint8_t none[1];
    FILE *file = fopen(path, "rbe");
    uint8_t *block = file && fstat(fileno(file), &about) == 0 ? malloc(BLOCK) : NULL;
    const uint64_t bytes = block && S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
    const uint64_t step = bytes <= WHOLE ? BLOCK : bytes / BLOCKS;
    bool good = block && S_ISREG(about.st_mode);
    for (uint64_t at = 0; good && at < bytes; at += step) {
        good = fseeko(file, (off_t)at, SEEK_SET) == 0;
        const size_t got = good ? fread(block, 1, BLOCK, file) : 0;
        good = good && got > 0;
        to->hash = mix(to->hash, good ? block : none, got);
    }
    to->hash = mix(to->hash, &bytes, sizeof(bytes));
    to->bytes += bytes;
    to->files += good;
    free(block);
    if (file)
        fclose(file);
    return good;
}

/* Whether a file in a folder of a hub or of PEFT is part of the model. */
static bool makes_the_model(const char *name)
{
    static const char *const names[] = {"config.json",           "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja",
                                        "adapter_config.json",   NULL};
    const size_t bytes = strlen(name);
    return tool_choice(name, names) >= 0 ||
           (bytes > 12 && strcmp(name + bytes - 12, ".safetensors") == 0);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void add_folder(const char *path, struct content *to)
{
    char(*names)[256] = calloc(MOST_FILES, sizeof(*names)), whole[TOOL_PATH_BYTES];
    DIR *folder = names ? opendir(path) : NULL;
    int count = 0;
    for (struct dirent *item; folder && count < MOST_FILES && (item = readdir(folder)) != NULL;)
        if (makes_the_model(item->d_name))
            snprintf(names[count++], sizeof(*names), "%s", item->d_name);
    if (count > 1)
        qsort(names, (size_t)count, sizeof(*names), by_name);
    for (int i = 0; i < count; i++) {
        to->hash = mix(to->hash, names[i], strlen(names[i]) + 1);
        if (snprintf(whole, sizeof(whole), "%s/%s", path, names[i]) < (int)sizeof(whole))
            (void)add_file(whole, to);
    }
    if (folder)
        closedir(folder);
    free(names);
}

int tool_terms_add_content(const struct tool_command *command, char **terms,
                           const struct tool_option *option)
{
    const char *path = *(const char *const *)option->value;
    struct content content = {.hash = 14695981039346656037u};
    struct stat about;
    char shown[96], size[32];
    if (!path)
        return tool_terms_add(command, terms, option->name, "not given", 0);
    if (strcmp(path, "-") == 0)
        return tool_terms_add(command, terms, option->name, "the standard input", 0);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        add_folder(path, &content);
    else
        (void)add_file(path, &content);
    snprintf(shown, sizeof(shown), "%d file%s, %s", content.files, content.files == 1 ? "" : "s",
             tool_bytes_text(content.bytes, size, sizeof(size)));
    return tool_terms_add(command, terms, option->name, shown, content.hash);
}

int tool_terms_whole(const struct tool_command *command, const struct tool_option *table,
                     char **out)
{
    char *of_job = NULL, *lines = NULL;
    int status = tool_terms(command, table, false, &lines);
    if (status == TOOL_OK)
        status = tool_terms(command, table, true, &of_job);
    for (const struct tool_option *o = table; o->name && status == TOOL_OK; o++)
        if (o->ranks == TOOL_CONTENT)
            status = tool_terms_add_content(command, &lines, o);
    const size_t bytes = lines && of_job ? strlen(lines) + strlen(of_job) + 1 : 0;
    *out = status == TOOL_OK ? malloc(bytes) : NULL;
    if (*out)
        snprintf(*out, bytes, "%s%s", lines, of_job);
    else if (status == TOOL_OK)
        status = tool_error(command, "out of memory");
    free(lines);
    free(of_job);
    return status;
}
