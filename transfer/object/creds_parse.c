/* creds_parse: reads the answers of credential endpoints. The input is untrusted. */
#include "base/json_scan.h"
#include "transfer/object/creds.h"
#include "transfer/object/xml.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { YEAR_MIN = 1970, YEAR_MAX = 9999 };

static bool number(const char *p, size_t digits, int min, int max, int *out)
{
    int v = 0;
    for (size_t i = 0; i < digits; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        v = v * 10 + (p[i] - '0');
    }
    *out = v;
    return v >= min && v <= max;
}

bool creds_parse_time(const char *text, uint64_t *unix_s_out)
{
    struct tm tm = { 0 };
    if (strlen(text) < strlen("2026-11-22T23:59:59Z")) return false;
    if (text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':') return false;
    if (!number(text, 4, YEAR_MIN, YEAR_MAX, &tm.tm_year) || !number(text + 5, 2, 1, 12, &tm.tm_mon) ||
        !number(text + 8, 2, 1, 31, &tm.tm_mday) || !number(text + 11, 2, 0, 23, &tm.tm_hour) ||
        !number(text + 14, 2, 0, 59, &tm.tm_min) || !number(text + 17, 2, 0, 60, &tm.tm_sec))
        return false;
    const char *end = text + 19;
    if (*end == '.') end += 1 + strspn(end + 1, "0123456789");
    if (strcmp(end, "Z") && strcmp(end, "+00:00")) return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *unix_s_out = (uint64_t)timegm(&tm);
    return true;
}

/* All of them are needed: their ends too, or nobody would know when to ask again. The text of a credential goes into
 * headers, so it holds no control byte. */
static bool accept(struct creds *c, const char *ends, char *why, size_t why_bytes)
{
    const char *text[] = { c->id, c->secret, c->token };
    for (int i = 0; i < 3; i++)
        for (const char *p = text[i]; *p; p++)
            if (*p <= ' ' || *p > '~') {
                snprintf(why, why_bytes, "credentials hold a byte that no header can carry");
                return false;
            }
    if (!*c->id || !*c->secret) {
        snprintf(why, why_bytes, "the answer has no AccessKeyId or no SecretAccessKey");
        return false;
    }
    if (*ends && !creds_parse_time(ends, &c->ends_s)) {
        snprintf(why, why_bytes, "Expiration: found '%.40s', needed is a time as in 2026-11-22T23:59:59Z", ends);
        return false;
    }
    return true;
}

static bool take(const json_t *root, const char *key, char *out, size_t out_bytes, char *why, size_t why_bytes)
{
    const char *s = "";
    size_t      n = 0;
    enum status st = json_get_str(root, key, &s, &n);
    if (st == ST_NOT_FOUND) return true;
    if (st || n >= out_bytes || memchr(s, 0, n)) {
        snprintf(why, why_bytes, "%s is no text of at most %zu bytes", key, out_bytes - 1);
        return false;
    }
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

bool creds_parse_json(const char *text, size_t n, struct creds *out, char *why, size_t why_bytes)
{
    static const struct json_bounds bounds = { .depth_max = 8, .members_max = 64, .tree_bytes_max = 64 << 10 };
    struct json_error               je;
    struct creds                    c = { .ends_s = 0 };
    char                            ends[64] = "";
    json_t                         *root = json_parse_bounded(text, n, &bounds, &je);
    if (!root) {
        snprintf(why, why_bytes, "the answer is no JSON: %.100s", je.text);
        return false;
    }
    bool ok = json_is_object(root);
    if (!ok) snprintf(why, why_bytes, "the answer is no JSON object");
    ok = ok && take(root, "AccessKeyId", c.id, sizeof c.id, why, why_bytes);
    ok = ok && take(root, "SecretAccessKey", c.secret, sizeof c.secret, why, why_bytes);
    ok = ok && take(root, "Token", c.token, sizeof c.token, why, why_bytes);
    ok = ok && take(root, "Expiration", ends, sizeof ends, why, why_bytes);
    json_decref(root);
    ok = ok && accept(&c, ends, why, why_bytes);
    if (ok) *out = c;
    return ok;
}

bool creds_parse_sts(const char *text, size_t n, struct creds *out, char *why, size_t why_bytes)
{
    struct creds c = { .ends_s = 0 };
    char         ends[64] = "", code[80] = "", message[160] = "";
    bool         ok = xml_find(text, n, "AccessKeyId", c.id, sizeof c.id) &&
              xml_find(text, n, "SecretAccessKey", c.secret, sizeof c.secret) &&
              xml_find(text, n, "SessionToken", c.token, sizeof c.token) &&
              xml_find(text, n, "Expiration", ends, sizeof ends);
    if (!ok) {
        xml_find(text, n, "Code", code, sizeof code);
        xml_find(text, n, "Message", message, sizeof message);
        snprintf(why, why_bytes, "the answer has no credentials%s%s%s%s", *code ? ": " : "", code, *message ? ": " : "",
                 message);
    }
    ok = ok && accept(&c, ends, why, why_bytes);
    if (ok) *out = c;
    return ok;
}

bool creds_url_is_safe(const char *url)
{
    static const char *const hosts[] = { "http://127.0.0.1",     "http://localhost",      "http://[::1]",
                                         "http://169.254.170.2", "http://169.254.170.23", "http://[fd00:ec2::23]" };
    if (!strncmp(url, "https://", 8)) return true;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t n = strlen(hosts[i]);
        if (!strncmp(url, hosts[i], n) && (url[n] == 0 || url[n] == '/' || url[n] == ':') && !strchr(url + n, '@'))
            return true;
    }
    return false;
}
