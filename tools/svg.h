/* SPDX-License-Identifier: MIT
 *
 * Pictures (SVG) without external resources, for light and dark backgrounds: shared by timelines
 * and pictures of schedules.
 */
#ifndef RF_TOOLS_SVG_H
#define RF_TOOLS_SVG_H

#include "tool.h"

/* The state of a drawing. */
struct svg {
    FILE *body; /* NULL: out of memory */
    char *text;
    size_t bytes;
};
struct svg_page {
    int width, height; /* in units; a browser draws one as a pixel */
    int left;          /* start of the title */
    int title_size, text_size;
    const char *title;
    const char *style; /* CSS in addition to that of the page: classes b (the background), l and h
                        * (texts aligned at their end or start; others are centred) */
};

/* A usage error if a --plot is neither .svg nor "-", the standard output. */
int svg_check(const struct tool_command *command, const char *path);
void svg_open(struct svg *svg);
/* Text with XML's special characters escaped. */
void svg_put(FILE *file, const char *text);
/* A line of text of this class. */
void svg_words(FILE *file, double x, double y, const char *class, const char *words);
/* Writes the picture to the file, and frees its memory. An exit status. */
int svg_write(struct svg *svg, const struct tool_command *command, const char *path,
              const struct svg_page *page);

#endif
