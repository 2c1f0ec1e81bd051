/* boot_adapters: --enable-lora and --lora-modules. */
#include "api/adapters.h"
#include "base/json.h"
#include "base/log.h"
#include "server/boot_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH = 4, SHOWN = 100 };

uint32_t boot_lora_slots(const struct config *cfg) { return cfg->lora ? cfg->lora_slots : 0; }

/* An element of --lora-modules. */
struct module {
    char name[LORA_NAME_MAX], path[4096];
};

static bool take(char *to, size_t bytes, const char *from, size_t n)
{
    if (!n || n >= bytes || memchr(from, 0, n)) return false;
    memcpy(to, from, n);
    to[n] = 0;
    return true;
}

/* vLLM's other form: an object with "name" and "path"; what else it says is left out. */
static bool read_json(const char *text, struct module *out)
{
    struct json_error je;
    json_t           *root = json_parse(text, strlen(text), JSON_DEPTH, &je);
    const char       *name, *path;
    size_t            n_name, n_path;
    bool ok = root && !json_get_str(root, "name", &name, &n_name) && !json_get_str(root, "path", &path, &n_path) &&
              take(out->name, sizeof out->name, name, n_name) && take(out->path, sizeof out->path, path, n_path);
    json_decref(root);
    return ok;
}

static bool read_module(const char *text, struct module *out)
{
    const char *eq = strchr(text, '=');
    if (*text == '{') return read_json(text, out);
    return eq && take(out->name, sizeof out->name, text, (size_t)(eq - text)) &&
           take(out->path, sizeof out->path, eq + 1, strlen(eq + 1));
}

static bool is_served(const struct api_model *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_name; i++)
        if (!strcmp(m->served_name[i], name)) return true;
    return false;
}

static int add(struct boot *b, const char *text)
{
    struct module   m;
    struct adapter *a = NULL;
    char            why[600];
    if (!read_module(text, &m) || !adapters_name_ok(m.name, strlen(m.name))) {
        snprintf(b->err, sizeof b->err,
                 "--lora-modules: found '%.*s', needed is NAME=DIR, or JSON with name and path; a name has no space, "
                 "comma, quote or backslash",
                 SHOWN, text);
        return EXIT_CONFIG;
    }
    if (is_served(&b->model, m.name) || adapters_has(b->model.adapters, m.name, strlen(m.name))) {
        snprintf(b->err, sizeof b->err, "--lora-modules: the name %.*s is taken", SHOWN, m.name);
        return EXIT_CONFIG;
    }
    enum status st = adapter_load(&b->spec, m.path, m.name, b->cfg->lora_rank, &a, why, sizeof why);
    if (st) {
        snprintf(b->err, sizeof b->err, "--lora-modules: %.*s: %s", SHOWN, m.name, why);
        return st == ST_NOT_FOUND ? EXIT_CONFIG : boot_exit_of(st);
    }
    LOG_INFO("lora: adapter %s of %s, %02x%02x%02x%02x..", m.name, m.path, a->digest[0], a->digest[1], a->digest[2],
             a->digest[3]);
    if (adapters_add(b->model.adapters, a, false) == ST_OK) return 0;
    adapter_drop(a);
    snprintf(b->err, sizeof b->err, "--lora-modules: %.*s is one more than --max-cpu-loras allows", SHOWN, m.name);
    return EXIT_CONFIG;
}

int boot_adapters(struct boot *b)
{
    const struct config *cfg = b->cfg;
    uint32_t             n_max = cfg->lora_host;
    int                  code = 0;
    if (!cfg->lora) return 0;
    if (!n_max) n_max = cfg->lora_modules.n > cfg->lora_slots ? cfg->lora_modules.n : cfg->lora_slots;
    if (!(b->model.adapters = adapters_create(n_max))) {
        snprintf(b->err, sizeof b->err, "no memory for %u adapters", n_max);
        return EXIT_SOFTWARE;
    }
    b->model.spec = &b->spec;
    for (uint32_t i = 0; i < cfg->lora_modules.n && !code; i++) code = add(b, cfg->lora_modules.s[i]);
    return code;
}
