#include "server/config_events.h"
#include "base/json.h"
#include "server/usage.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "--kv-events-config"

struct reader {
    struct config_events *out;
    char                 *err;
    size_t                n_err;
    bool                  enabled, publisher_is_null;
};

static int wrong(struct reader *r, const char *field, const json_t *v, const char *allowed)
{
    char *found = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    int code = usage_error(r->err, r->n_err, OPTION ": \"%s\": found %.100s, allowed is %s", field, found ? found : "?",
                           allowed);
    free(found);
    return code;
}

static int read_bool(struct reader *r, const char *field, const json_t *v, bool *out)
{
    if (!json_is_boolean(v)) return wrong(r, field, v, "true or false");
    *out = json_is_true(v);
    return 0;
}

static int read_count(struct reader *r, const char *field, const json_t *v, uint32_t min, uint32_t *out)
{
    enum { MOST = 10000000 };
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > MOST)
        return wrong(r, field, v, min ? "a whole number from 1 to 10000000" : "a whole number from 0 to 10000000");
    *out = (uint32_t)json_integer_value(v);
    return 0;
}

static int read_text(struct reader *r, const char *field, const json_t *v, char *out, size_t bytes)
{
    size_t n = json_string_length(v);
    if (!json_is_string(v) || n >= bytes || strlen(json_string_value(v)) != n)
        return wrong(r, field, v, "a text of at most 255 bytes");
    memcpy(out, json_string_value(v), n + 1);
    return 0;
}

static int read_address(struct reader *r, const char *field, const json_t *v, char *out, size_t bytes)
{
    int code = read_text(r, field, v, out, bytes);
    if (code || !strncmp(out, "tcp://", 6) || !strncmp(out, "ipc://", 6)) return code;
    return wrong(r, field, v, "an address that begins with tcp:// or ipc://");
}

/* One of two words; *second_out: it is the second. */
static int read_word(struct reader *r, const char *field, const json_t *v, const char *const word[2], bool *second_out)
{
    char        allowed[80];
    const char *s = json_string_value(v);
    *second_out = s && !strcmp(s, word[1]);
    if (*second_out || (s && !strcmp(s, word[0]))) return 0;
    snprintf(allowed, sizeof allowed, "\"%s\" or \"%s\"", word[0], word[1]);
    return wrong(r, field, v, allowed);
}

static int read_field(struct reader *r, const char *field, const json_t *v)
{
    static const char *const publishers[] = { "zmq", "null" };
    static const char *const encodings[] = { "map", "array" };
    static const char *const hashes[] = { "int", "bytes" };
    struct config_events    *o = r->out;
    if (!strcmp(field, "enable_kv_cache_events")) return read_bool(r, field, v, &r->enabled);
    if (!strcmp(field, "endpoint")) return read_address(r, field, v, o->endpoint, sizeof o->endpoint);
    if (!strcmp(field, "topic")) return read_text(r, field, v, o->topic, sizeof o->topic);
    if (!strcmp(field, "buffer_steps")) return read_count(r, field, v, 0, &o->cfg.buffer_steps);
    if (!strcmp(field, "hwm")) return read_count(r, field, v, 1, &o->cfg.hwm);
    if (!strcmp(field, "max_queue_size")) return read_count(r, field, v, 1, &o->cfg.queue_max);
    if (!strcmp(field, "encoding")) return read_word(r, field, v, encodings, &o->cfg.as_array);
    if (!strcmp(field, "block_hashes")) return read_word(r, field, v, hashes, &o->cfg.hash_bytes);
    if (!strcmp(field, "publisher"))
        return json_is_null(v) ? 0 : read_word(r, field, v, publishers, &r->publisher_is_null);
    if (!strcmp(field, "replay_endpoint"))
        return json_is_null(v) ? 0 : read_address(r, field, v, o->replay, sizeof o->replay);
    return usage_error(r->err, r->n_err,
                       OPTION ": found \"%.60s\", allowed are enable_kv_cache_events, publisher, endpoint, "
                              "replay_endpoint, topic, buffer_steps, hwm, max_queue_size, encoding, block_hashes",
                       field);
}

int config_events_read(const char *text, struct config_events *out, char *err, size_t n_err)
{
    struct json_error at;
    const char       *field;
    json_t           *v, *all;
    struct reader     r = { .out = out, .err = err, .n_err = n_err };
    int               code = 0;
    *out = (struct config_events){ .cfg = { .buffer_steps = 10000, .hwm = 100000, .queue_max = 100000 },
                                   .endpoint = "tcp://*:5557" };
    out->cfg.endpoint = out->endpoint;
    out->cfg.replay_endpoint = out->replay;
    out->cfg.topic = out->topic;
    if (!*text) return 0;
    all = json_parse(text, strlen(text), 0, &at);
    if (!json_is_object(all)) {
        json_decref(all);
        return usage_error(err, n_err, OPTION ": found '%.100s', needed is a JSON object, as in %s", text,
                           "{\"enable_kv_cache_events\":true,\"endpoint\":\"tcp://*:5557\"}");
    }
    json_object_foreach(all, field, v)
    {
        code = read_field(&r, field, v);
        if (code) break;
    }
    json_decref(all);
    if (!code && *out->replay && !out->cfg.buffer_steps)
        code = usage_error(err, n_err, OPTION ": \"replay_endpoint\" needs a \"buffer_steps\" above 0");
    out->on = r.enabled && !r.publisher_is_null;
    return code;
}
