#include "engine/model/packed.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/model/packed_file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { IDENT_MAX = 4 << 20 };

bool packed_wanted(const struct model_load_cfg *cfg, const struct source *src)
{
    return cfg->packed_dir && *cfg->packed_dir && (src->dir || src->reader) && !src->dummy;
}

/* ---------------------------------------------------------------- the identity */

static uint64_t mix(uint64_t h, uint64_t a, uint64_t b, uint64_t c)
{
    return hash_combine(hash_combine(hash_combine(h, a), b), c);
}

/* A hash of what every job copies, and of its destination counted from the beginning of the span. */
static uint64_t layout(const struct packed *k)
{
    uint64_t h = k->p->n_job;
    for (uint32_t i = 0; i < k->p->n_job; i++) {
        const struct place_job *j = &k->p->job[i];
        const void             *to = j->vec;
        if (j->order) to = j->order;
        if (j->w) to = j->w->data;
        h = mix(h, (uint64_t)((const char *)to - k->base), j->dst_row, j->n_row);
        h = mix(h, j->src_row, j->src_col, (uint64_t)j->slot << 32 | j->layer);
        h = mix(h, hash_bytes(j->tensor->name, strlen(j->tensor->name), 0), 0,
                (uint64_t)j->expert << 8 | (uint64_t)j->tensor->dtype);
        if (j->head) h = mix(h, j->head, j->rot, 0);
        if (!j->w) continue;
        h = mix(h, j->w->n, j->w->k, j->w->bytes);
        h = mix(h, (uint64_t)j->w->dtype << 32 | j->w->q.group, (uint64_t)j->w->q.code,
                (uint64_t)j->w->q.full << 2 | (uint64_t)j->w->q.zero << 1 | j->w->q.act8);
        if (j->w->scale) h = hash_combine(h, (uint64_t)((const char *)j->w->scale - k->base));
        if (j->w->zero) h = hash_combine(h, (uint64_t)((const char *)j->w->zero - k->base));
    }
    return h;
}

static enum status ident_make(struct packed *k, const float *inv_freq, const unsigned char root[IDENT_BYTES])
{
    const struct place *p = k->p;
    struct device      *d = p->dev;
    struct buf         *b = &k->ident;
    bool                codes = p->quant.code != DT_F32;
    buf_printf(b, "spillway packed weights %d\ndevice %s rank %u of %u\n", PACKED_VERSION, d->ops->name, d->rank,
               d->n_rank);
    buf_printf(b,
               "weights %s codes %s group %u zero %d act8 %d forms %016" PRIx64 " %016" PRIx64 " %016" PRIx64
               " %016" PRIx64 "\n",
               dtype_name(p->weight_dtype), codes ? dtype_name(p->quant.code) : "none", p->quant.group, p->quant.zero,
               p->quant.act8, k->form[0], k->form[1], k->form[2], k->form[3]);
    buf_printf(b,
               "family %s quant %d block_rows %u plus %d layout %016" PRIx64 " rope %016" PRIx64 " span %" PRIu64 "\n",
               p->spec->family->arch, (int)p->spec->quant.method, p->spec->quant.block_rows, p->spec->quant.zero_plus_1,
               k->layout, hash_bytes(inv_freq, p->spec->rot / 2 * sizeof *inv_freq, 0), k->bytes);
    buf_puts(b, "weights ");
    for (int i = 0; i < IDENT_BYTES; i++) buf_printf(b, "%02x", root[i]);
    buf_puts(b, "\n");
    return b->failed ? ST_TOO_LARGE : ST_OK;
}

/* ---------------------------------------------------------------- a load */

void packed_begin(struct packed *k, struct place *p, const struct model_load_cfg *cfg, const struct source *src)
{
    static const struct dev_quant int8 = {
        .code = DT_I8
    }; /* the format of the embedding and the head, where the other matrices have another one */
    bool codes = p->quant.code != DT_F32;
    *k = (struct packed){ .cfg = cfg, .p = p, .src = src };
    buf_init(&k->ident, IDENT_MAX);
    k->form[0] = dev_weight_form(p->dev, p->weight_dtype, NULL);
    k->form[1] = codes ? dev_weight_form(p->dev, p->quant.code, &p->quant) : 1;
    k->form[2] =
        codes ? dev_weight_form(p->dev, DT_I8, &int8) : 1; /* with codes of its own: form[1], and layout() knows */
    k->form[3] = p->experts.code != DT_F32 ? dev_weight_form(p->dev, p->experts.code, &p->experts) : 1;
    k->on = k->form[0] && k->form[1] && k->form[2] && k->form[3];
    if (!k->on)
        LOG_WARN("packed: nothing is kept in %s: this device's weights do not lie in the memory of the process",
                 cfg->packed_dir);
}

/* Makes the name of the file of these weights. False: the weights cannot be kept; the reason was logged. */
static bool name_file(struct packed *k, const unsigned char root[IDENT_BYTES])
{
    const char *dir = k->cfg->packed_dir;
    char        why[PACKED_WHY];
    buf_clear(&k->ident);
    enum status st = ident_make(k, k->inv_freq, root);
    uint64_t    a = hash_bytes(k->ident.data, k->ident.n, 1), b = hash_bytes(k->ident.data, k->ident.n, 2);
    int         n = snprintf(k->path, sizeof k->path, "%s/%016" PRIx64 "%016" PRIx64 ".packed", dir, a, b);
    if (st) {
        LOG_WARN("packed: nothing is kept in %s: the weights cannot be described: %s", dir, status_name(st));
        return false;
    }
    if (n < 0 || (size_t)n >= sizeof k->path) {
        LOG_WARN("packed: nothing is kept: the path of the folder has more than %zu bytes", sizeof k->path);
        return false;
    }
    int error = file_make_folder(dir, 0755, why, sizeof why);
    if (!error || error == EROFS || error == EACCES)
        return true; /* the folder may be there already, with the file in it */
    LOG_WARN("packed: nothing is kept in %s: %s", dir, why);
    return false;
}

static struct packed_span span_of(const struct packed *k)
{
    return (struct packed_span){ k->base, k->bytes, k->cfg->n_thread, k->cfg->progress, k->cfg->progress_ctx };
}

enum status packed_take(struct packed *k, const float *inv_freq, void *base, uint64_t bytes,
                        const struct ident_file *files, unsigned char root_out[IDENT_BYTES], bool *hit_out)
{
    char     why[PACKED_WHY];
    bool     mapped;
    uint64_t t = clock_us();
    *hit_out = false;
    k->base = base;
    k->bytes = bytes;
    k->inv_freq = inv_freq;
    k->files = files;
    k->layout = layout(k); /* computed now, because reading sorts the jobs */
    k->known = k->on && ident_file_read(k->cfg->packed_dir, files, k->root);
    if (!k->known || !(k->on = name_file(k, k->root))) return ST_OK;
    struct packed_span s = span_of(k);
    switch (packed_file_read(k->path, k->ident.data, k->ident.n, &s, k->p->dev, &mapped, why)) {
    case PACKED_HIT:
        *hit_out = true;
        memcpy(root_out, k->root, IDENT_BYTES);
        LOG_INFO("packed: rank %u: %" PRIu64 " MiB of weights %s from %s and checked in %" PRIu64 " ms",
                 k->p->dev->rank, k->bytes >> 20, mapped ? "mapped" : "read", k->path, (clock_us() - t) / 1000);
        return ST_OK;
    case PACKED_NONE: return ST_OK;
    case PACKED_DOUBT: LOG_WARN("packed: %s is not used: %s; the checkpoint is read", k->path, why); return ST_OK;
    case PACKED_LOST: break;
    }
    return ST_NOMEM;
}

void packed_keep(struct packed *k, const unsigned char root[IDENT_BYTES])
{
    char     why[PACKED_WHY];
    uint64_t t = clock_us();
    if (k->known && memcmp(root, k->root, IDENT_BYTES) != 0)
        LOG_WARN("packed: the checkpoint is not what %s/%s says, though its files seem unchanged", k->cfg->packed_dir,
                 k->files->name);
    if (!k->on || !(k->on = name_file(k, root))) return;
    struct packed_span s = span_of(k);
    uint64_t           need = packed_file_bytes(k->ident.n, k->bytes);
    s.progress = NULL; /* the work that the text describes is done */
    if (!k->files->certain)
        LOG_WARN(
            "packed: nothing is kept: the times of the checkpoint's files lie ahead of this machine's clock, so that a change would not show");
    else if (!packed_dir_room(k->cfg->packed_dir, k->path, need, k->cfg->packed_bytes_max))
        LOG_WARN("packed: %" PRIu64 " bytes are more than the %" PRIu64 " that --packed-cache allows, nothing is kept",
                 need, k->cfg->packed_bytes_max);
    else if (!packed_file_write(k->path, k->ident.data, k->ident.n, &s, why))
        LOG_WARN("packed: cannot keep %" PRIu64 " MiB in %s: %s; the next start reads the checkpoint again", need >> 20,
                 k->cfg->packed_dir, why);
    else {
        ident_file_write(k->cfg->packed_dir, k->files, root);
        LOG_INFO("packed: rank %u: %" PRIu64 " MiB of weights kept as %s in %" PRIu64 " ms", k->p->dev->rank,
                 need >> 20, k->path, (clock_us() - t) / 1000);
    }
}

void packed_end(struct packed *k) { buf_free(&k->ident); }
