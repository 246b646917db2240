/* SPDX-License-Identifier: MIT
 *
 * Pictures as SVG: see svg.h.
 */
#include "svg.h"

#include <string.h>

static const char style[] =
    ".b{fill:#fff}text{fill:#1b1b1b;text-anchor:middle}.l{text-anchor:end}.h{text-anchor:start}"
    "@media(prefers-color-scheme:dark){.b{fill:#0d1117}text{fill:#e6e6e6}}";

int svg_check(const struct tool_command *command, const char *path)
{
    const char *dot = strrchr(path, '.');
    if (strcmp(path, "-") == 0 || (dot && strcmp(dot, ".svg") == 0))
        return TOOL_OK;
    return tool_usage_error(
        command, "pictures are SVG; use a file name that ends in .svg, not \"%s\"", path);
}

void svg_open(struct svg *svg)
{
    *svg = (struct svg){0};
    svg->body = open_memstream(&svg->text, &svg->bytes);
}

void svg_put(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

void svg_words(FILE *file, double x, double y, const char *class, const char *words)
{
    fprintf(file, "<text class=\"%s\" x=\"%.7g\" y=\"%.7g\">", class, x, y);
    svg_put(file, words);
    fprintf(file, "</text>\n");
}

static void put_page(FILE *file, const struct svg_page *page, const char *body)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 %d %d\" "
            "width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"%d\">\n<title>",
            page->width, page->height, page->width, page->height, page->text_size);
    svg_put(file, page->title);
    fprintf(file,
            "</title>\n<style>%s%s</style>\n<path class=\"b\" d=\"M0 0H%dV%dH0z\"/>\n"
            "<g font-size=\"%d\">",
            style, page->style, page->width, page->height, page->title_size);
    svg_words(file, page->left, 22, "h", page->title);
    fprintf(file, "</g>\n%s</svg>\n", body);
}

int svg_write(struct svg *svg, const struct tool_command *command, const char *path,
              const struct svg_page *page)
{
    char *text = NULL;
    size_t bytes = 0;
    bool good = svg->body != NULL;
    if (good) {
        good = !ferror(svg->body);
        good = fclose(svg->body) == 0 && good;
    }
    FILE *file = good ? open_memstream(&text, &bytes) : NULL;
    if (file) {
        put_page(file, page, svg->text);
        good = !ferror(file);
        good = fclose(file) == 0 && good;
    }
    int status = file && good ? tool_file_write(command, path, text, bytes)
                              : tool_error(command, "out of memory while drawing %s", path);
    free(text);
    free(svg->text);
    *svg = (struct svg){0};
    return status;
}
