#include "server/lora.h"
#include "api/adapters.h"
#include "base/json_scan.h"
#include "base/log.h"
#include "server/conn.h"
#include "server/text.h"
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_BYTES = LORA_NAME_MAX + 80 };
static const struct json_bounds bounds = { .depth_max = 4, .members_max = 64, .tree_bytes_max = 1 << 16 };

/* One request while its connection waits. */
struct lora_task {
    struct conn_work work;
    struct text_job  job;
    struct server   *srv;
    struct conn     *conn; /* NULL: gone */
    struct buf       body;
    uint64_t         charge; /* of the body, taken from server.bodies */
    bool             load;
    enum status      st;
    struct api_error e;
    char             answer[ANSWER_BYTES];
};

/* ---- what is asked for */

static enum status read_name(const json_t *root, char name[LORA_NAME_MAX], struct api_error *e)
{
    const char *s;
    size_t      n;
    if (json_get_str(root, "lora_name", &s, &n) || !adapters_name_ok(s, n))
        return api_fail(e, 400, "lora_name",
                        "'lora_name' must be a name of at most %d bytes without spaces, commas, quotes and backslashes",
                        LORA_NAME_MAX - 1);
    memcpy(name, s, n);
    name[n] = 0;
    return ST_OK;
}

static bool is_below(const char *root, const char *path)
{
    size_t n = strlen(root);
    if (n == 1) return true; /* "/" */
    return !strncmp(root, path, n) && path[n] == '/';
}

/* The folder that a path means, without links: a path from the root of adapters on, or an absolute one below it. */
static enum status find_folder(const struct config *cfg, const char *path, char out[PATH_MAX], struct api_error *e)
{
    static const char *const files[] = { "adapter_config.json", "adapter_model.safetensors" };
    char                     root[PATH_MAX], whole[PATH_MAX], file[PATH_MAX], show[200];
    int                      n = *path == '/' ? snprintf(whole, sizeof whole, "%s", path)
                                              : snprintf(whole, sizeof whole, "%s/%s", cfg->lora_root, path);
    api_excerpt(show, sizeof show, path, strlen(path));
    if (n < 0 || (size_t)n >= sizeof whole || !realpath(cfg->lora_root, root) || !realpath(whole, out) ||
        !is_below(root, out))
        return api_fail_code(e, 404, "lora_path", "adapter_not_found",
                             "'lora_path': there is no adapter %s below the folder of --lora-root", show);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) { /* nor do its files lie elsewhere */
        n = snprintf(whole, sizeof whole, "%s/%s", out, files[i]);
        if (n < 0 || (size_t)n >= sizeof whole) return api_fail(e, 400, "lora_path", "'lora_path' is too long");
        if (realpath(whole, file) && !is_below(root, file))
            return api_fail_code(e, 404, "lora_path", "adapter_not_found",
                                 "'lora_path': %s of %s lies outside the folder of --lora-root", files[i], show);
    }
    return ST_OK;
}

static enum status name_taken(const struct api_model *m, const char *name, bool inplace, struct api_error *e)
{
    bool taken = !inplace && adapters_has(m->adapters, name, strlen(name));
    for (uint32_t i = 0; i < m->n_name; i++) taken = taken || !strcmp(m->served_name[i], name);
    if (!taken) return ST_OK;
    return api_fail(e, 400, "lora_name",
                    "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to true.",
                    name);
}

static enum status add(struct lora_task *t, struct adapter *a, bool inplace)
{
    char          name[LORA_NAME_MAX];
    unsigned char digest[4];
    snprintf(name, sizeof name, "%s", a->name);
    memcpy(digest, a->digest, sizeof digest);
    enum status st = adapters_add(t->srv->model->adapters, a, inplace);
    if (st == ST_OK) { /* others may use and unload it from here on */
        LOG_INFO("lora: adapter %s is loaded, %02x%02x%02x%02x..", name, digest[0], digest[1], digest[2], digest[3]);
        snprintf(t->answer, sizeof t->answer, "Success: LoRA adapter '%s' added successfully.", name);
        return ST_OK;
    }
    adapter_drop(a);
    if (st == ST_INVALID) return name_taken(t->srv->model, name, false, &t->e); /* another request was quicker */
    return api_fail(&t->e, 429, "", "%u adapters are loaded or still in use; see --max-cpu-loras",
                    adapters_max(t->srv->model->adapters));
}

static enum status load(struct lora_task *t, const json_t *root)
{
    const struct config *cfg = t->srv->cfg;
    char                 name[LORA_NAME_MAX], folder[PATH_MAX], why[600];
    const char          *path;
    size_t               n_path;
    bool                 inplace = false;
    struct adapter      *a = NULL;
    enum status          st = read_name(root, name, &t->e);
    if (st) return st;
    if (json_get_str(root, "lora_path", &path, &n_path) || !n_path || memchr(path, 0, n_path))
        return api_fail(&t->e, 400, "lora_path", "'lora_path' must be the path of a folder");
    if (json_get_bool(root, "load_inplace", &inplace) == ST_INVALID)
        return api_fail(&t->e, 400, "load_inplace", "'load_inplace' must be true or false");
    if ((st = name_taken(t->srv->model, name, inplace, &t->e))) return st;
    if ((st = find_folder(cfg, path, folder, &t->e))) return st;
    st = adapter_load(t->srv->model->spec, folder, name, cfg->lora_rank, &a, why, sizeof why);
    if (st == ST_OK) return add(t, a, inplace);
    LOG_WARN("lora: adapter %s is not loaded: %s", name, why);
    if (st == ST_NOT_FOUND) return api_fail_code(&t->e, 404, "lora_path", "adapter_not_found", "'lora_path': %s", why);
    return api_fail(&t->e, st == ST_CONFIG ? 400 : 503, "lora_path", "'lora_path': %s", why);
}

static enum status unload(struct lora_task *t, const json_t *root)
{
    char        name[LORA_NAME_MAX];
    enum status st = read_name(root, name, &t->e);
    if (st) return st;
    st = adapters_remove(t->srv->model->adapters, name);
    if (st == ST_NOT_FOUND)
        return api_fail_code(&t->e, 404, "lora_name", "adapter_not_found", "The lora adapter '%s' cannot be found.",
                             name);
    if (st) return api_fail(&t->e, 429, "", "requests still use too many adapters that were unloaded before");
    LOG_INFO("lora: adapter %s is unloaded; requests that run with it end as they began", name);
    snprintf(t->answer, sizeof t->answer, "Success: LoRA adapter '%s' removed successfully.", name);
    return ST_OK;
}

/* ---- its way */

static struct lora_task *of_job(struct text_job *j)
{
    return (struct lora_task *)(void *)((char *)j - offsetof(struct lora_task, job));
}

static void task_gone(struct conn_work *w)
{
    ((struct lora_task *)(void *)((char *)w - offsetof(struct lora_task, work)))->conn = NULL;
}

static void task_run(struct text_job *j)
{
    struct lora_task *t = of_job(j);
    struct json_error je;
    json_t           *root = json_parse_bounded(t->body.data, t->body.n, &bounds, &je);
    conn_give_body(t->srv, &t->body, t->charge);
    if (!root || !json_is_object(root))
        t->st = api_fail(&t->e, 400, "", "the body is no JSON object%s%s", root ? "" : ": ", root ? "" : je.text);
    else
        t->st = t->load ? load(t, root) : unload(t, root);
    json_decref(root);
}

static void task_done(struct text_job *j)
{
    struct lora_task *t = of_job(j);
    struct conn      *c = t->conn;
    if (c) {
        c->work = NULL;
        if (t->st)
            conn_error(c, &t->e);
        else
            conn_respond(c, 200, "text/plain; charset=utf-8", t->answer, strlen(t->answer));
    }
    free(t);
}

/* Always by a text thread: a folder's file system may be slow. */
static void begin(struct conn *c, bool is_load)
{
    struct lora_task *t = calloc(1, sizeof *t);
    if (!t) {
        conn_fail(c, 503, "", "out of memory");
        return;
    }
    t->work = (struct conn_work){ .gone = task_gone };
    t->conn = c;
    t->srv = c->io->srv;
    t->load = is_load;
    t->charge = conn_take_body(c, &t->body);
    t->job = (struct text_job){
        .io = c->io, .run = task_run, .done = task_done, .who = conn_who(c), .bytes = is_load ? TEXT_SMALL_MAX : 1
    };
    c->work = &t->work;
    if (text_submit(c->io->srv->text, &t->job)) return;
    c->work = NULL;
    conn_give_body(c->io->srv, &t->body, t->charge);
    free(t);
    conn_fail(c, 429, "", "too many requests are waiting; try again later");
}

void lora_load(struct conn *c) { begin(c, true); }

void lora_unload(struct conn *c) { begin(c, false); }
