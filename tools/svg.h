/* SPDX-License-Identifier: MIT
 *
 * Pictures (SVG) that need nothing else, for light and dark backgrounds: what timelines and
 * pictures of schedules have in common.
 */
#ifndef RF_TOOLS_SVG_H
#define RF_TOOLS_SVG_H

#include "tool.h"

/* What has been drawn so far. */
struct svg {
    FILE *body; /* NULL: out of memory */
    char *text;
    size_t bytes;
};
struct svg_page {
    int width, height; /* in units, of which a browser shows one a pixel */
    int left;          /* where the title begins */
    int title_size, text_size;
    const char *title;
    const char *style; /* CSS beside that of the page: classes b (the background), l and h (texts
                          that end or begin where they are put; others are centred) */
};

/* A usage error for a --plot that is no .svg, and not "-", the standard output. */
int svg_check(const struct tool_command *command, const char *path);
void svg_open(struct svg *svg);
/* Text with the characters that XML keeps for itself. */
void svg_put(FILE *file, const char *text);
/* A line of text of this class. */
void svg_words(FILE *file, double x, double y, const char *class, const char *words);
/* Writes the picture to the file, and frees what belongs to it. An exit status. */
int svg_write(struct svg *svg, const struct tool_command *command, const char *path,
              const struct svg_page *page);

#endif
