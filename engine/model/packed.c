#include "engine/model/packed.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/model/packed_file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { IDENT_MAX = 4 << 20, SAMPLE = 4096, SETTLE_MS = 50, CONFIG_MAX = 16 << 20 };

bool packed_wanted(const struct model_load_cfg *cfg, const struct source *src)
{
    return cfg->packed_dir && *cfg->packed_dir && src->dir && !src->dummy;
}

/* ---------------------------------------------------------------- the identity */

/* 4 KiB from the middle of every tensor: a checkpoint that was trained further differs there, on file systems too whose times and
 * inodes say nothing (images with all times alike). */
static enum status samples(const struct st_set *set, uint64_t *out)
{
    unsigned char part[SAMPLE];
    uint64_t      h = 0;
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const struct st_tensor *t = &set->tensor[i];
        size_t                  n = t->bytes < SAMPLE ? (size_t)t->bytes : (size_t)SAMPLE;
        if (source_read(&set->file[t->file], t->offset + (t->bytes - n) / 2, part, n)) return ST_IO;
        h = hash_combine(h, hash_bytes(part, n, i));
    }
    *out = h;
    return ST_OK;
}

/* A file that changed just now may change again without a later time to show for it: wait until the clock has moved on. */
static void settle(const struct timespec *changed)
{
    struct timespec now, wait = { .tv_nsec = SETTLE_MS * 1000000L };
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ago_ms = (int64_t)(now.tv_sec - changed->tv_sec) * 1000 + (now.tv_nsec - changed->tv_nsec) / 1000000;
    if (ago_ms >= 0 && ago_ms < SETTLE_MS) nanosleep(&wait, NULL);
}

static enum status ident_files(const struct packed *k, struct buf *b)
{
    const struct st_set *set = k->p->bind->set;
    uint64_t             heads, middle;
    struct stat          st;
    char                *text;
    size_t               n;
    enum status          s = source_text(k->src, "config.json", CONFIG_MAX, &text, &n);
    if (s) return s;
    buf_printf(b, "config.json %zu bytes %016" PRIx64 "\n", n, hash_bytes(text, n, 0));
    free(text);
    for (uint32_t i = 0; i < set->n_file; i++) {
        if (fstat(set->file[i].fd, &st)) return ST_IO;
        settle(&st.st_ctim);
        if (fstat(set->file[i].fd, &st)) return ST_IO;
        buf_printf(b, "file %s %" PRIu64 " bytes inode %" PRIu64 " mtime %lld.%09ld ctime %lld.%09ld\n", set->file[i].name,
                   (uint64_t)st.st_size, (uint64_t)st.st_ino, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                   (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    }
    if ((s = st_fingerprint(set, &heads)) || (s = samples(set, &middle))) return s;
    buf_printf(b, "heads %016" PRIx64 " samples %016" PRIx64 "\n", heads, middle);
    return ST_OK;
}

static uint64_t mix(uint64_t h, uint64_t a, uint64_t b, uint64_t c) { return hash_combine(hash_combine(hash_combine(h, a), b), c); }

/* What every job moves whereto, the span's beginning being 0. */
static uint64_t layout(const struct packed *k)
{
    uint64_t h = k->p->n_job;
    for (uint32_t i = 0; i < k->p->n_job; i++) {
        const struct place_job *j = &k->p->job[i];
        const void             *to = j->w ? j->w->data : j->vec;
        h = mix(h, (uint64_t)((const char *)to - k->base), j->dst_row, j->n_row);
        h = mix(h, j->src_row, j->src_col, (uint64_t)j->slot << 32 | j->layer);
        h = mix(h, j->tensor->offset, j->tensor->file, (uint64_t)j->expert << 8 | (uint64_t)j->tensor->dtype);
        if (!j->w) continue;
        h = mix(h, j->w->n, j->w->k, j->w->bytes);
        h = mix(h, (uint64_t)j->w->dtype << 32 | j->w->q.group, (uint64_t)j->w->q.code, (uint64_t)j->w->q.zero << 1 | j->w->q.act8);
        if (j->w->scale) h = hash_combine(h, (uint64_t)((const char *)j->w->scale - k->base));
        if (j->w->zero) h = hash_combine(h, (uint64_t)((const char *)j->w->zero - k->base));
    }
    return h;
}

static enum status ident_make(struct packed *k, const float *inv_freq)
{
    const struct place *p = k->p;
    struct device      *d = p->dev;
    struct buf         *b = &k->ident;
    bool                codes = p->quant.code != DT_F32;
    buf_printf(b, "spillway packed weights %d\ndevice %s rank %u of %u\n", PACKED_VERSION, d->ops->name, d->rank, d->n_rank);
    buf_printf(b, "weights %s codes %s group %u zero %d act8 %d forms %016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n",
               dtype_name(p->weight_dtype), codes ? dtype_name(p->quant.code) : "none", p->quant.group, p->quant.zero, p->quant.act8,
               k->form[0], k->form[1], k->form[2]);
    buf_printf(b, "family %s quant %d block_rows %u plus %d layout %016" PRIx64 " rope %016" PRIx64 " span %" PRIu64 "\n",
               p->spec->family->arch, (int)p->spec->quant.method, p->spec->quant.block_rows, p->spec->quant.zero_plus_1, layout(k),
               hash_bytes(inv_freq, p->spec->rot / 2 * sizeof *inv_freq, 0), k->bytes);
    k->files_at = b->n;
    enum status st = ident_files(k, b);
    return st ? st : b->failed ? ST_TOO_LARGE : ST_OK;
}

/* ---------------------------------------------------------------- a load */

void packed_begin(struct packed *k, struct place *p, const struct model_load_cfg *cfg, const struct source *src)
{
    static const struct dev_quant int8 = { .code = DT_I8 }; /* embedding and head beside other codes */
    bool                          codes = p->quant.code != DT_F32;
    *k = (struct packed){ .cfg = cfg, .p = p, .src = src };
    buf_init(&k->ident, IDENT_MAX);
    k->form[0] = dev_weight_form(p->dev, p->weight_dtype, NULL);
    k->form[1] = codes ? dev_weight_form(p->dev, p->quant.code, &p->quant) : 1;
    k->form[2] = codes ? dev_weight_form(p->dev, DT_I8, &int8) : 1; /* with codes of its own: form[1], and layout() knows */
    k->on = k->form[0] && k->form[1] && k->form[2];
    if (!k->on) LOG_WARN("packed: nothing is kept in %s: this device's weights do not lie in the memory of the process", cfg->packed_dir);
}

static void name_file(struct packed *k, const float *inv_freq)
{
    const char *dir = k->cfg->packed_dir;
    enum status st = ident_make(k, inv_freq);
    uint64_t    a = hash_bytes(k->ident.data, k->ident.n, 1), b = hash_bytes(k->ident.data, k->ident.n, 2);
    int         n = snprintf(k->path, sizeof k->path, "%s/%016" PRIx64 "%016" PRIx64 ".packed", dir, a, b);
    k->on = false;
    if (st)
        LOG_WARN("packed: nothing is kept in %s: the checkpoint cannot be identified: %s", dir, status_name(st));
    else if (n < 0 || (size_t)n >= sizeof k->path)
        LOG_WARN("packed: nothing is kept: the path of the folder has more than %zu bytes", sizeof k->path);
    else if (mkdir(dir, 0755) && errno != EEXIST && errno != EROFS && errno != EACCES)
        LOG_WARN("packed: nothing is kept: cannot make the folder %s: %s", dir, strerror(errno));
    else
        k->on = true;
}

static struct packed_span span_of(const struct packed *k)
{
    return (struct packed_span){ k->base, k->bytes, k->cfg->n_thread, k->cfg->progress, k->cfg->progress_ctx };
}

enum status packed_take(struct packed *k, const float *inv_freq, void *base, uint64_t bytes, bool *hit_out)
{
    char     why[PACKED_WHY];
    bool     mapped;
    uint64_t t = clock_us();
    *hit_out = false;
    k->base = base, k->bytes = bytes;
    if (k->on) name_file(k, inv_freq);
    if (!k->on) return ST_OK;
    struct packed_span s = span_of(k);
    switch (packed_file_read(k->path, k->ident.data, k->ident.n, &s, k->p->dev, &mapped, why)) {
    case PACKED_HIT:
        *hit_out = true;
        LOG_INFO("packed: rank %u: %" PRIu64 " MiB of weights %s from %s and checked in %" PRIu64 " ms", k->p->dev->rank, k->bytes >> 20,
                 mapped ? "mapped" : "read", k->path, (clock_us() - t) / 1000);
        return ST_OK;
    case PACKED_NONE: return ST_OK;
    case PACKED_DOUBT: LOG_WARN("packed: %s is not used: %s; the checkpoint is read", k->path, why); return ST_OK;
    case PACKED_LOST: break;
    }
    return ST_NOMEM;
}

void packed_keep(struct packed *k)
{
    struct packed_span s = span_of(k);
    struct buf         now;
    char               why[PACKED_WHY];
    uint64_t           t = clock_us(), need = packed_file_bytes(k->ident.n, k->bytes);
    if (!k->on) return;
    s.progress = NULL; /* what it tells of is done */
    buf_init(&now, IDENT_MAX);
    bool same = ident_files(k, &now) == ST_OK && now.n == k->ident.n - k->files_at && !memcmp(now.data, k->ident.data + k->files_at, now.n);
    buf_free(&now);
    if (!same)
        LOG_WARN("packed: the checkpoint changed while it was read, nothing is kept");
    else if (!packed_dir_room(k->cfg->packed_dir, k->path, need, k->cfg->packed_bytes_max))
        LOG_WARN("packed: %" PRIu64 " bytes are more than the %" PRIu64 " that --packed-cache allows, nothing is kept", need,
                 k->cfg->packed_bytes_max);
    else if (!packed_file_write(k->path, k->ident.data, k->ident.n, &s, why))
        LOG_WARN("packed: cannot keep %" PRIu64 " MiB in %s: %s; the next start reads the checkpoint again", need >> 20, k->cfg->packed_dir,
                 why);
    else
        LOG_INFO("packed: rank %u: %" PRIu64 " MiB of weights kept as %s in %" PRIu64 " ms", k->p->dev->rank, need >> 20, k->path,
                 (clock_us() - t) / 1000);
}

void packed_end(struct packed *k) { buf_free(&k->ident); }
