#include "engine/model/source_json.h"
#include <stdio.h>
#include <stdlib.h>

enum { FILE_MAX = 1 << 20 };

enum status source_json(const struct source *src, const char *name, json_t **root_out, char *err, size_t err_bytes)
{
    char             *text = NULL;
    size_t            n = 0;
    struct json_error je;
    *root_out = NULL;
    enum status st = source_text(src, name, FILE_MAX, &text, &n);
    if (st == ST_NOT_FOUND) return ST_OK;
    if (st) {
        snprintf(err, err_bytes, "%s: %s", name,
                 st == ST_TOO_LARGE ? "larger than any such file should be" : "cannot be read");
        return st == ST_TOO_LARGE ? ST_CONFIG : st;
    }
    *root_out = json_parse(text, n, 0, &je);
    free(text);
    if (*root_out) return ST_OK;
    snprintf(err, err_bytes, "%s: not valid JSON: %s (at byte %zu)", name, je.text, je.offset);
    return ST_CONFIG;
}
