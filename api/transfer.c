#include "api/transfer.h"
#include "api/params.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEX = 2 * KV_PARCEL_ID, HOST_BYTES = 255, PORT_MAX = 65535, BLOCKS_MAX = 1 << 20 };

/* ---------------------------------------------------------------- the request */

/* "'kv_transfer_params.NAME' must be WHAT, found VALUE" */
static enum status wrong(const char *name, const char *what, const json_t *v, struct api_error *e)
{
    char  param[64], show[200];
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(param, sizeof param, "kv_transfer_params.%s", name);
    if (text)
        api_excerpt(show, sizeof show, text, strlen(text));
    else
        snprintf(show, sizeof show, "nothing");
    free(text);
    return api_fail(e, 400, param, "'%s' must be %s, found %s", param, what, show);
}

static const json_t *member(const json_t *v, const char *name)
{
    const json_t *m = json_object_get(v, name);
    return m && !json_is_null(m) ? m : NULL;
}

static enum status read_flag(const json_t *v, const char *name, bool *out, struct api_error *e)
{
    const json_t *m = member(v, name);
    if (m && !json_is_boolean(m)) return wrong(name, "true, false or null", m, e);
    *out = m && json_is_true(m);
    return ST_OK;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The ids that this server's like gives: 32 hex digits. */
static enum status read_id(const json_t *v, const char *name, unsigned char out[KV_PARCEL_ID], struct api_error *e)
{
    static const char what[] = "the 32 lower-case hex digits of the prefill server's answer";
    const json_t     *m = member(v, name);
    if (!json_is_string(m) || json_string_length(m) != HEX) return wrong(name, what, m, e);
    const char *s = json_string_value(m);
    for (int i = 0; i < KV_PARCEL_ID; i++) {
        int hi = digit(s[2 * i]), lo = digit(s[2 * i + 1]);
        if (hi < 0 || lo < 0) return wrong(name, what, m, e);
        out[i] = (unsigned char)(hi << 4 | lo);
    }
    return ST_OK;
}

static enum status read_blocks(const json_t *v, uint32_t *n_out, struct api_error *e)
{
    static const char name[] = "remote_block_ids", what[] = "an array of at most 1048576 integers from 0 to 2147483647";
    const json_t     *m = member(v, name);
    size_t            n = json_array_size(m);
    if (!json_is_array(m) || n > BLOCKS_MAX) return wrong(name, what, json_is_array(m) ? NULL : m, e);
    for (size_t i = 0; i < n; i++) {
        const json_t *b = json_array_get(m, i);
        if (!json_is_integer(b) || json_integer_value(b) < 0 || json_integer_value(b) > INT32_MAX)
            return wrong(name, what, b, e);
    }
    *n_out = (uint32_t)n;
    return ST_OK;
}

/* Nothing is done with them; what is malformed is told all the same, for it comes from another program's mistake. */
static enum status check_address(const json_t *v, struct api_error *e)
{
    const json_t *host = member(v, "remote_host"), *port = member(v, "remote_port"), *tp = member(v, "tp_size");
    if (host && (!json_is_string(host) || json_string_length(host) > HOST_BYTES))
        return wrong("remote_host", "a string of at most 255 bytes, or null", host, e);
    if (port && (!json_is_integer(port) || json_integer_value(port) < 0 || json_integer_value(port) > PORT_MAX))
        return wrong("remote_port", "an integer from 0 to 65535, or null", port, e);
    if (tp && (!json_is_integer(tp) || json_integer_value(tp) < 1 || json_integer_value(tp) > INT32_MAX))
        return wrong("tp_size", "an integer of at least 1, or null", tp, e);
    return ST_OK;
}

static enum status check_keeps(const struct call *c, struct api_error *e)
{
    const struct api_peering *m = c->model->peering;
    const char               *param = "kv_transfer_params.do_remote_decode";
    if (!m || !m->keeps)
        return api_fail(e, 400, param,
                        "'%s' is true, but this server keeps no prompt for others: it has no --kv-peer-listen", param);
    if (m->role == ROLE_DECODE)
        return api_fail(e, 400, param, "'%s' is true, but this server has --role decode, needed is prefill or both",
                        param);
    if (c->stream) return api_fail(e, 400, "stream", "'stream' must be false where '%s' is true, found true", param);
    return ST_OK;
}

enum status check_transfer(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    struct call_transfer     *t = &c->transfer;
    const struct api_peering *m = c->model->peering;
    enum status               st;
    (void)p;
    if ((st = read_flag(v, "do_remote_decode", &t->keeps, e))) return st;
    if ((st = read_flag(v, "do_remote_prefill", &t->pulls, e))) return st;
    if (t->keeps && t->pulls)
        return api_fail(e, 400, "kv_transfer_params",
                        "'kv_transfer_params' has do_remote_decode and do_remote_prefill true, allowed is one of them");
    if (t->keeps) return check_keeps(c, e);
    if (!t->pulls) return ST_OK;
    if (m && m->role == ROLE_PREFILL)
        return api_fail(
            e, 400, "kv_transfer_params.do_remote_prefill",
            "'kv_transfer_params.do_remote_prefill' is true, but this server has --role prefill, needed is decode or both");
    if ((st = read_id(v, "remote_engine_id", t->claim.engine, e))) return st;
    if ((st = read_id(v, "remote_request_id", t->claim.id, e))) return st;
    if ((st = read_blocks(v, &t->claim.n_block, e))) return st;
    return check_address(v, e);
}

/* ---------------------------------------------------------------- to the engine and back */

void transfer_request(struct call *c, struct eng_request *r)
{
    struct call_transfer *t = &c->transfer;
    if (t->pulls) r->claim = &t->claim;
    if (!t->keeps) return;
    uint32_t n = r->n_prompt / c->model->peering->block_tokens;
    t->parcel.slot = n ? arena_alloc(&c->arena, n * sizeof *t->parcel.slot) : NULL;
    t->parcel.n_block_max = t->parcel.slot ? n : 0; /* without memory nothing is kept */
    r->parcel = &t->parcel;
}

void transfer_put(const struct call *c, struct buf *out)
{
    const struct kv_parcel   *p = &c->transfer.parcel;
    const struct api_peering *m = c->model->peering;
    char                      id[HEX + 1];
    if (!c->transfer.keeps) return;
    for (int i = 0; i < KV_PARCEL_ID; i++) snprintf(id + 2 * i, 3, "%02x", p->n_block ? p->id[i] : 0u);
    buf_puts(out,
             ",\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":[");
    for (uint32_t i = 0; i < p->n_block; i++) {
        if (i) buf_putc(out, ',');
        json_put_int(out, p->slot[i]);
    }
    buf_puts(out, "],\"remote_engine_id\":\"");
    buf_puts(out, m->engine);
    buf_puts(out, "\",\"remote_request_id\":\"");
    buf_puts(out, id);
    buf_puts(out, "\",\"remote_host\":");
    json_put_str(out, m->host, strlen(m->host));
    buf_puts(out, ",\"remote_port\":");
    json_put_int(out, m->port);
    buf_puts(out, ",\"tp_size\":");
    json_put_int(out, m->tp_size);
    buf_putc(out, '}');
}
