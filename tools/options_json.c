/* SPDX-License-Identifier: MIT
 *
 * COMMAND --options: the table of a command's options as JSON, for programs and for the tests of
 * every option. docs/json.md.
 */
#include <string.h>

#include "tool.h"

static const char *const kinds[] = {"flag", "int", "count", "real", "text", "file", "list"};
static const char *const paths[] = {NULL,     "reads",       "resumes", "reads all",
                                    "writes", "writes into", "replaces"};
static const char *const shares[] = {"alike", "given", "content", "own"};

static void add_text(cJSON *row, const char *name, const char *text)
{
    if (text)
        cJSON_AddStringToObject(row, name, text);
}

static cJSON *row_of(const struct tool_option *o)
{
    cJSON *row = cJSON_CreateObject();
    const char letter[2] = {tool_option_letter(o->name), 0};
    cJSON_AddStringToObject(row, "name", o->name);
    add_text(row, "letter", letter[0] ? letter : NULL);
    add_text(row, "group", tool_option_group(o->name));
    cJSON_AddStringToObject(row, "kind", kinds[o->kind]);
    add_text(row, "value", o->what);
    cJSON_AddStringToObject(row, "help", o->help);
    if (o->kind == TOOL_INT || o->kind == TOOL_COUNT || o->kind == TOOL_REAL) {
        cJSON_AddNumberToObject(row, "least", o->least);
        if (o->most > 0)
            cJSON_AddNumberToObject(row, "most", o->most);
    }
    add_text(row, "needs", o->needs);
    add_text(row, "path", paths[o->path]);
    cJSON_AddStringToObject(row, "ranks", shares[o->ranks]);
    add_text(row, "why", o->why);
    cJSON_AddBoolToObject(row, "kept", o->kept);
    return row;
}

void tool_options_json(const struct tool_command *command, const struct tool_option *table)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "command", command->name);
    cJSON *rows = cJSON_AddArrayToObject(json, "options");
    for (const struct tool_option *o = table; o->name; o++)
        if (!o->operand)
            cJSON_AddItemToArray(rows, row_of(o));
    char *text = cJSON_Print(json);
    printf("%s\n", text ? text : "");
    cJSON_free(text);
    cJSON_Delete(json);
}
