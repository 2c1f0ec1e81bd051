#include "server/lora.h"
#include "api/adapters.h"
#include "base/json_scan.h"
#include "base/log.h"
#include "server/conn.h"
#include "server/text.h"
#include "server/text_task.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct json_bounds bounds = { .depth_max = 4, .members_max = 64, .tree_bytes_max = 1 << 16 };

/* What is asked for, in the words of its dialect: vLLM's routes and SageMaker's name the same things differently. */
struct lora_words {
    const char *name, *path; /* fields of the body */
};
static const struct lora_words vllm = { "lora_name", "lora_path" }, platform = { "name", "src" };

/* ---- what is asked for */

static enum status take_name(const char *s, size_t n, const struct lora_words *w, char name[LORA_NAME_MAX],
                             struct api_error *e)
{
    if (!s || !adapters_name_ok(s, n))
        return api_fail(e, 400, w->name,
                        "'%s' must be a name of at most %d bytes without spaces, commas, quotes and backslashes",
                        w->name, LORA_NAME_MAX - 1);
    memcpy(name, s, n);
    name[n] = 0;
    return ST_OK;
}

static enum status read_name(const json_t *root, const struct lora_words *w, char name[LORA_NAME_MAX],
                             struct api_error *e)
{
    const char *s = NULL;
    size_t      n = 0;
    if (json_get_str(root, w->name, &s, &n)) s = NULL;
    return take_name(s, n, w, name, e);
}

static bool is_below(const char *root, const char *path)
{
    size_t n = strlen(root);
    if (n == 1) return true; /* "/" */
    return !strncmp(root, path, n) && path[n] == '/';
}

/* The folder that a path means, without links: a path from the root of adapters on, or an absolute one below it. */
static enum status find_folder(const struct config *cfg, const struct lora_words *w, const char *path,
                               char out[PATH_MAX], struct api_error *e)
{
    static const char *const files[] = { "adapter_config.json", "adapter_model.safetensors" };
    char                     root[PATH_MAX], whole[PATH_MAX], file[PATH_MAX], show[200];
    int                      n = *path == '/' ? snprintf(whole, sizeof whole, "%s", path)
                                              : snprintf(whole, sizeof whole, "%s/%s", cfg->lora_root, path);
    api_excerpt(show, sizeof show, path, strlen(path));
    if (n < 0 || (size_t)n >= sizeof whole || !realpath(cfg->lora_root, root) || !realpath(whole, out) ||
        !is_below(root, out))
        return api_fail_code(e, 404, w->path, "adapter_not_found",
                             "'%s': there is no adapter %s below the folder of --lora-root", w->path, show);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) { /* nor do its files lie elsewhere */
        n = snprintf(whole, sizeof whole, "%s/%s", out, files[i]);
        if (n < 0 || (size_t)n >= sizeof whole) return api_fail(e, 400, w->path, "'%s' is too long", w->path);
        if (realpath(whole, file) && !is_below(root, file))
            return api_fail_code(e, 404, w->path, "adapter_not_found",
                                 "'%s': %s of %s lies outside the folder of --lora-root", w->path, files[i], show);
    }
    return ST_OK;
}

static enum status name_taken(const struct api_model *m, const struct lora_words *w, const char *name, bool inplace,
                              struct api_error *e)
{
    bool taken = !inplace && adapters_has(m->adapters, name, strlen(name));
    for (uint32_t i = 0; i < m->n_name; i++) taken = taken || !strcmp(m->served_name[i], name);
    if (!taken) return ST_OK;
    return api_fail(e, 400, w->name,
                    "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to true.",
                    name);
}

static enum status add(const struct api_model *m, const struct lora_words *w, struct adapter *a, bool inplace,
                       struct buf *out, struct api_error *e)
{
    char          name[LORA_NAME_MAX];
    unsigned char digest[4];
    snprintf(name, sizeof name, "%s", a->name);
    memcpy(digest, a->digest, sizeof digest);
    enum status st = adapters_add(m->adapters, a, inplace);
    if (st == ST_OK) { /* others may use and unload it from here on */
        LOG_INFO("lora: adapter %s is loaded, %02x%02x%02x%02x..", name, digest[0], digest[1], digest[2], digest[3]);
        buf_printf(out, "Success: LoRA adapter '%s' added successfully.", name);
        return ST_OK;
    }
    adapter_drop(a);
    if (st == ST_INVALID) return name_taken(m, w, name, false, e); /* another request was quicker */
    return api_fail(e, 429, "", "%u adapters are loaded or still in use; see --max-cpu-loras",
                    adapters_max(m->adapters));
}

static enum status load(const struct text_ask *ask, const struct lora_words *w, const json_t *root, struct buf *out,
                        struct api_error *e)
{
    const struct config    *cfg = ask->srv->cfg;
    const struct api_model *m = ask->srv->model;
    char                    name[LORA_NAME_MAX], folder[PATH_MAX], why[600];
    const char             *path;
    size_t                  n_path;
    bool                    inplace = false;
    struct adapter         *a = NULL;
    enum status             st = read_name(root, w, name, e);
    if (st) return st;
    if (json_get_str(root, w->path, &path, &n_path) || !n_path || memchr(path, 0, n_path))
        return api_fail(e, 400, w->path, "'%s' must be the path of a folder", w->path);
    if (json_get_bool(root, "load_inplace", &inplace) == ST_INVALID)
        return api_fail(e, 400, "load_inplace", "'load_inplace' must be true or false");
    if ((st = name_taken(m, w, name, inplace, e))) return st;
    if ((st = find_folder(cfg, w, path, folder, e))) return st;
    st = adapter_load(m->spec, folder, name, cfg->lora_rank, &a, why, sizeof why);
    if (st == ST_OK) return add(m, w, a, inplace, out, e);
    LOG_WARN("lora: adapter %s is not loaded: %s", name, why);
    if (st == ST_NOT_FOUND) return api_fail_code(e, 404, w->path, "adapter_not_found", "'%s': %s", w->path, why);
    return api_fail(e, st == ST_CONFIG ? 400 : 503, w->path, "'%s': %s", w->path, why);
}

static enum status unload(const struct text_ask *ask, const struct lora_words *w, const char *name, struct buf *out,
                          struct api_error *e)
{
    enum status st = adapters_remove(ask->srv->model->adapters, name);
    if (st == ST_NOT_FOUND)
        return api_fail_code(e, 404, w->name, "adapter_not_found", "The lora adapter '%s' cannot be found.", name);
    if (st) return api_fail(e, 429, "", "requests still use too many adapters that were unloaded before");
    LOG_INFO("lora: adapter %s is unloaded; requests that run with it end as they began", name);
    buf_printf(out, "Success: LoRA adapter '%s' removed successfully.", name);
    return ST_OK;
}

/* ---- the routes */

/* NULL: *e says why. */
static json_t *read_body(const struct text_ask *ask, struct api_error *e)
{
    struct json_error je;
    json_t           *root = json_parse_bounded(ask->body, ask->n_body, &bounds, &je);
    if (root && json_is_object(root)) return root;
    api_fail(e, 400, "", "the body is no JSON object%s%s", root ? "" : ": ", root ? "" : je.text);
    json_decref(root);
    return NULL;
}

static enum status load_ask(const struct text_ask *ask, struct buf *out, struct api_error *e)
{
    json_t     *root = read_body(ask, e);
    enum status st = root ? load(ask, &vllm, root, out, e) : ST_INVALID;
    json_decref(root);
    return st;
}

static enum status unload_ask(const struct text_ask *ask, struct buf *out, struct api_error *e)
{
    char        name[LORA_NAME_MAX];
    json_t     *root = read_body(ask, e);
    enum status st = root ? read_name(root, &vllm, name, e) : ST_INVALID;
    if (st == ST_OK) st = unload(ask, &vllm, name, out, e);
    json_decref(root);
    return st;
}

/* "preload" and "pin" change nothing: an adapter lies in the host's memory from here on until it is unloaded. */
static enum status platform_load_ask(const struct text_ask *ask, struct buf *out, struct api_error *e)
{
    static const char *const unused[] = { "preload", "pin" };
    bool                     value;
    json_t                  *root = read_body(ask, e);
    enum status              st = root ? ST_OK : ST_INVALID;
    for (size_t i = 0; st == ST_OK && i < sizeof unused / sizeof *unused; i++)
        if (json_get_bool(root, unused[i], &value) == ST_INVALID)
            st = api_fail(e, 400, unused[i], "'%s' must be true or false", unused[i]);
    if (st == ST_OK) st = load(ask, &platform, root, out, e);
    json_decref(root);
    return st;
}

static enum status platform_unload_ask(const struct text_ask *ask, struct buf *out, struct api_error *e)
{
    char        name[LORA_NAME_MAX];
    enum status st = take_name(ask->arg, strlen(ask->arg), &platform, name, e);
    return st ? st : unload(ask, &platform, name, out, e);
}

/* Never by the io thread: a folder's file system may be slow, and the memory of an adapter large. */
static void begin(struct conn *c, text_ask_fn *fn, size_t bytes)
{
    text_task_begin(c, fn, "text/plain; charset=utf-8", bytes);
}

void lora_load(struct conn *c) { begin(c, load_ask, TEXT_SMALL_MAX); }
void lora_unload(struct conn *c) { begin(c, unload_ask, TEXT_INLINE_MAX); }
void lora_platform_load(struct conn *c) { begin(c, platform_load_ask, TEXT_SMALL_MAX); }
void lora_platform_unload(struct conn *c)
{
    size_t n;
    if (!route_decode(c->req.arg, &n)) {
        conn_fail(c, 404, "", "no such route");
        return;
    }
    c->req.arg[n] = 0;
    begin(c, platform_unload_ask, TEXT_INLINE_MAX);
}
