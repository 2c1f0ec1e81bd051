#include "transfer/object/s3_answer.h"
#include "transfer/object/xml.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

void s3_error_parse(const char *text, size_t n, struct s3_error *out)
{
    *out = (struct s3_error){ .code = "" };
    if (!xml_find(text, n, "Code", out->code, sizeof out->code)) *out->code = 0;
    if (!xml_find(text, n, "Message", out->message, sizeof out->message)) *out->message = 0;
}

/* Digits alone, to the end of the text. */
static bool number(const char *p, uint64_t *out)
{
    uint64_t v = 0;
    if (!*p) return false;
    for (; *p; p++) {
        if (*p < '0' || *p > '9' || v > (UINT64_MAX - 9) / 10) return false;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *out = v;
    return true;
}

/* One <Contents> as it is read. */
struct entry {
    char     key[2 * OBJECT_NAME + OBJECT_URL], etag[OBJECT_ETAG];
    uint64_t bytes;
    bool     key_ok, bytes_ok;
};

/* A key that is too long for us, or has bytes that we do not read, is nobody's that we look for. */
static void give(const struct entry *e, const char *prefix, struct object_req *r)
{
    size_t n = strlen(prefix);
    if (!e->key_ok || strncmp(e->key, prefix, n)) return;
    const char *name = e->key + n;
    if (strlen(name) >= OBJECT_NAME) return;
    memcpy(r->last, name, strlen(name) + 1);
    if (e->bytes_ok) r->each(r->ctx, name, e->bytes, e->etag);
}

bool s3_list_parse(const char *text, size_t n, const char *prefix, struct object_req *r)
{
    struct xml    x;
    enum xml_kind k;
    struct entry  e = { .bytes = 0 };
    char          field[XML_NAME] = "", value[64];
    bool          is_list = false, inside = false;
    r->more = false;
    *r->last = 0;
    xml_begin(&x, text, n);
    while ((k = xml_next(&x)) != XML_END && k != XML_BAD) {
        if (k == XML_OPEN) {
            is_list |= x.depth == 1 && !strcmp(x.name, "ListBucketResult");
            if (x.depth == 2 && !strcmp(x.name, "Contents")) {
                inside = true;
                memset(&e, 0, sizeof e);
            }
            memcpy(field, x.name, sizeof field);
        } else if (k == XML_CLOSE) {
            *field = 0;
            if (x.depth == 1 && inside) {
                give(&e, prefix, r);
                inside = false;
            }
        } else if (inside && x.depth == 3 && !strcmp(field, "Key")) {
            e.key_ok = xml_text(&x, e.key, sizeof e.key);
        } else if (inside && x.depth == 3 && !strcmp(field, "Size")) {
            e.bytes_ok = xml_text(&x, value, sizeof value) && number(value, &e.bytes);
        } else if (inside && x.depth == 3 && !strcmp(field, "ETag")) {
            if (!xml_text(&x, e.etag, sizeof e.etag)) *e.etag = 0;
        } else if (x.depth == 2 && !strcmp(field, "IsTruncated")) {
            r->more = xml_text(&x, value, sizeof value) && !strcmp(value, "true");
        }
    }
    return is_list && k == XML_END;
}

bool s3_range_is(const char *value, uint64_t off, uint64_t bytes, uint64_t *total_out)
{
    char        part[64];
    uint64_t    first, last;
    const char *dash = strchr(value, '-'), *slash = strchr(value, '/');
    if (strncmp(value, "bytes ", 6) || !dash || !slash || slash < dash || strlen(value) >= sizeof part) return false;
    memcpy(part, value + 6, (size_t)(dash - value) - 6);
    part[dash - value - 6] = 0;
    if (!number(part, &first)) return false;
    memcpy(part, dash + 1, (size_t)(slash - dash) - 1);
    part[slash - dash - 1] = 0;
    if (!number(part, &last) || !number(slash + 1, total_out)) return false;
    return first == off && last >= first && last - first + 1 == bytes && last < *total_out;
}

bool s3_date_parse(const char *value, uint64_t *unix_s_out)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm         tm = { 0 };
    char              part[8];
    uint64_t          v[5];
    static const struct {
        int at, n;
    } digits[5] = { { 5, 2 }, { 12, 4 }, { 17, 2 }, { 20, 2 }, { 23, 2 } };
    if (strlen(value) != strlen("Sun, 06 Nov 1994 08:49:37 GMT") || strcmp(value + 25, " GMT")) return false;
    if (value[3] != ',' || value[4] != ' ' || value[7] != ' ' || value[11] != ' ' || value[16] != ' ' ||
        value[19] != ':' || value[22] != ':')
        return false;
    for (int i = 0; i < 5; i++) {
        memcpy(part, value + digits[i].at, (size_t)digits[i].n);
        part[digits[i].n] = 0;
        if (!number(part, &v[i])) return false;
    }
    memcpy(part, value + 8, 3);
    part[3] = 0;
    const char *m = strstr(months, part);
    if (!m || (m - months) % 3) return false;
    if (v[0] < 1 || v[0] > 31 || v[1] < 1970 || v[2] > 23 || v[3] > 59 || v[4] > 60) return false;
    tm.tm_mday = (int)v[0];
    tm.tm_mon = (int)(m - months) / 3;
    tm.tm_year = (int)v[1] - 1900;
    tm.tm_hour = (int)v[2];
    tm.tm_min = (int)v[3];
    tm.tm_sec = (int)v[4];
    *unix_s_out = (uint64_t)timegm(&tm);
    return true;
}
