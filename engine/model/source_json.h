/* source_json: small JSON files of a model folder.   Thread: any, while loading. */
#pragma once
#include "base/json.h"
#include "engine/model/source.h"

/* *root_out is the caller's (json_decref), NULL: there is no such file, and the status is ST_OK. ST_CONFIG: too large,
 * or not JSON; ST_IO. err: one line with the file's name. */
enum status source_json(const struct source *src, const char *name, json_t **root_out, char *err, size_t err_bytes);
