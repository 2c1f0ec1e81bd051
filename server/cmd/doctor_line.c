/* doctor_line: writes a finding as a line of text or JSON, and reads a line of a file. */
#include "base/file.h"
#include "base/json.h"
#include "server/cmd/doctor.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const state_name[] = { "ok", "warn", "fail" };

static void put_json(struct doctor *d, enum doctor_state s, const char *name, const char *fix, const char *found)
{
    const char *const part[][2] = { { "name", name }, { "state", state_name[s] }, { "found", found }, { "fix", fix } };
    uint32_t          n = d->n[DOCTOR_OK] + d->n[DOCTOR_WARN] + d->n[DOCTOR_FAIL];
    buf_puts(&d->out, n > 1 ? ",\n  {" : "\n  {");
    for (int i = 0; i < 4; i++) {
        if (i) buf_puts(&d->out, ", ");
        buf_printf(&d->out, "\"%s\": ", part[i][0]);
        json_put_str(&d->out, part[i][1], strlen(part[i][1]));
    }
    buf_putc(&d->out, '}');
}

void doctor_say(struct doctor *d, enum doctor_state s, const char *name, const char *fix, const char *fmt, ...)
{
    char    found[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(found, sizeof found, fmt, ap);
    va_end(ap);
    for (char *p = found; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?'; /* a folder's name: one line stays one */
    d->n[s]++;
    if (d->json)
        put_json(d, s, name, fix, found);
    else
        buf_printf(&d->out, "%-5s %-12s %s%s%s\n", state_name[s], name, found, *fix ? "; " : "", fix);
}

bool doctor_line(const struct doctor *d, const char *path, char *out, size_t bytes)
{
    char   full[600];
    size_t n = 0;
    *out = 0;
    snprintf(full, sizeof full, "%s%s", d->root, path);
    int error = file_read_first(full, out, bytes - 1, &n);
    if (error) n = 0;
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return !error && *out;
}
