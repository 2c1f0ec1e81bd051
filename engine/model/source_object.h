/* source_object: a model's files in an object store (--model s3://BUCKET/PREFIX). source_object_open lists the prefix
 * once; then files are opened by that list and read by ranges, several at a time, each under the version that was
 * listed: an object that changes meanwhile is an error, not a mixture.   Thread: any while loading. */
#pragma once
#include "engine/model/source.h"
#include "transfer/object/object.h"

struct source_object;
/* err: one line. ST_CONFIG: the URL, the endpoint or the credentials; ST_PEER_LOST, ST_TIMEOUT: the store does not
 * answer; ST_NOT_FOUND: nothing lies there. */
enum status source_object_open(const struct object_cfg *cfg, struct source_object **o_out, char *err, size_t err_bytes);
void        source_object_close(struct source_object *o); /* NULL: nothing. Its files are closed */
/* What is read of weights from now on is kept in the folder dir (partial.h) until source_object_loaded, so that a start
 * that is killed is continued by the next one. bytes_max: for all of it; beyond that, and without room on the disk for
 * twice as much, nothing is kept and a line says so. dir must outlive o. */
void source_object_keep(struct source_object *o, const char *dir, uint64_t bytes_max);
void source_object_loaded(struct source_object *o); /* nobody reads any more, and what was kept is removed */
const struct source_reader *source_object_reader(const struct source_object *o);
