#include "engine/model/folder.h"
#include "base/json.h"
#include "engine/model/source.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4400, NAME_BYTES = 256, ENTRIES_MAX = 4096, ADAPTER_BYTES_MAX = 1 << 20 };

/* What one look at a folder finds. The names are of the first file of a kind. */
struct seen {
    bool config, params, adapter, tokenizer_model, tekken;
    char gguf[NAME_BYTES], weights[NAME_BYTES], pickle[NAME_BYTES], below[NAME_BYTES];
    int  n_below, n_entry;
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n > k && !strcmp(name + n - k, suffix);
}

static bool is_pickle(const char *name)
{
    return ends_with(name, ".bin") || ends_with(name, ".pt") || ends_with(name, ".pth") || ends_with(name, ".ckpt");
}

static bool exists(const char *dir, const char *name)
{
    char        path[PATH_BYTES];
    struct stat st;
    int         n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && !stat(path, &st);
}

/* The least of several names, so that the text does not depend on the order of the folder. */
static void keep_least(char *kept, const char *name)
{
    if (!*kept || strcmp(name, kept) < 0) snprintf(kept, NAME_BYTES, "%s", name);
}

static void look_at_name(const char *path, const char *name, struct seen *s)
{
    char inner[PATH_BYTES];
    s->n_entry++;
    s->config |= !strcmp(name, "config.json");
    s->params |= !strcmp(name, "params.json");
    s->adapter |= !strcmp(name, "adapter_config.json");
    s->tokenizer_model |= !strcmp(name, "tokenizer.model");
    s->tekken |= !strcmp(name, "tekken.json");
    if (ends_with(name, ".gguf")) keep_least(s->gguf, name);
    if (ends_with(name, ".safetensors")) keep_least(s->weights, name);
    if (is_pickle(name)) keep_least(s->pickle, name);
    snprintf(inner, sizeof inner, "%s/config.json", name);
    if (!exists(path, inner)) return;
    s->n_below++;
    keep_least(s->below, name);
}

/* false: not a folder that can be listed */
static bool look(const char *path, struct seen *s)
{
    DIR           *d = opendir(path);
    struct dirent *e;
    *s = (struct seen){ .n_entry = 0 };
    if (!d) return false;
    while (s->n_entry < ENTRIES_MAX && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) look_at_name(path, e->d_name, s);
    closedir(d);
    return true;
}

/* The base model that an adapter names, in quotes and with a space before it, or "". */
static void adapter_base(const char *path, char *text, size_t text_bytes)
{
    struct source     src = { .dir = path };
    struct json_error je;
    char             *json = NULL;
    size_t            n = 0;
    *text = 0;
    if (source_text(&src, "adapter_config.json", ADAPTER_BYTES_MAX, &json, &n)) return;
    json_t     *root = json_parse(json, n, 0, &je);
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    char       *shown =
        base ? json_dumps(json_object_get(root, "base_model_name_or_path"), JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    if (shown) snprintf(text, text_bytes, " of %.150s", shown);
    free(shown);
    json_decref(root);
    free(json);
}

bool folder_has_adapter(const char *path) { return exists(path, "adapter_config.json"); }

static bool file_phrase(const char *path, char *text, size_t text_bytes)
{
    const char *what = "is a file";
    if (ends_with(path, ".gguf"))
        what = "is a GGUF file, which is not read";
    else if (ends_with(path, ".safetensors"))
        what = "is one file of a model";
    else if (is_pickle(path))
        what = "is a pickle file, which is never opened";
    snprintf(text, text_bytes,
             "%s; needed is the folder of a model with config.json, tokenizer.json and model.safetensors", what);
    return true;
}

/* A folder of a hub's cache: refs, blobs and the model in snapshots/REVISION. */
static bool look_at_snapshots(const char *path, struct seen *s)
{
    char inner[PATH_BYTES];
    int  n = snprintf(inner, sizeof inner, "%s/snapshots", path);
    return n > 0 && (size_t)n < sizeof inner && look(inner, s) && s->n_below > 0;
}

bool folder_no_model(const char *path, char *text, size_t text_bytes)
{
    struct stat st;
    struct seen s, cache;
    char        base[192];
    *text = 0;
    if (stat(path, &st)) return false;
    if (!S_ISDIR(st.st_mode)) return file_phrase(path, text, text_bytes);
    if (!look(path, &s) || s.config) return false;
    if (s.adapter) {
        adapter_base(path, base, sizeof base);
        snprintf(
            text, text_bytes,
            "holds a PEFT adapter%s (adapter_config.json) and no model; needed is the folder of the base model, and beside it "
            "--enable-lora --lora-modules NAME=DIR with this one",
            base);
    } else if (s.params) {
        snprintf(
            text, text_bytes,
            "holds a model in Mistral's own format (params.json%s%s), which is not read; needed are config.json, tokenizer.json and "
            "model.safetensors as transformers has them",
            *s.weights ? ", " : "", s.weights);
    } else if (*s.gguf) {
        snprintf(
            text, text_bytes,
            "holds GGUF files (%s), which are not read; needed is the checkpoint that they were made of: config.json, tokenizer.json "
            "and model.safetensors",
            s.gguf);
    } else if (look_at_snapshots(path, &cache)) {
        snprintf(text, text_bytes, "is a folder of a hub's cache; the model is in its snapshots/%s%s", cache.below,
                 cache.n_below > 1 ? " (and others): give one of them" : ": give that");
    } else if (s.n_below > 0) {
        snprintf(text, text_bytes, "has config.json only a level below, in %s%s", s.below,
                 s.n_below > 1 ? " and others: give one of them" : ": give that");
    } else if (s.n_entry == 0) {
        snprintf(text, text_bytes, "is empty; needed are config.json, tokenizer.json and model.safetensors");
    } else if (*s.weights || *s.pickle || s.tokenizer_model || s.tekken) {
        const char *found = s.tokenizer_model ? "tokenizer.model" : "tekken.json";
        if (*s.pickle) found = s.pickle;
        if (*s.weights) found = s.weights;
        snprintf(text, text_bytes,
                 "holds %s but no config.json; needed are config.json, tokenizer.json and model.safetensors", found);
    } else {
        snprintf(text, text_bytes, "holds no model; needed are config.json, tokenizer.json and model.safetensors");
    }
    return true;
}

void folder_no_weights(const char *path, char *text, size_t text_bytes)
{
    struct seen s;
    bool        listed = look(path, &s);
    if (listed && *s.weights && !strncmp(s.weights, "adapter", strlen("adapter")))
        snprintf(
            text, text_bytes,
            "an adapter's weights are (%s): the folder of the base model is needed, and this one in --lora-modules",
            s.weights);
    else if (listed && *s.weights)
        snprintf(
            text, text_bytes,
            "%s is: such names need model.safetensors.index.json beside them, or the one file's name must be model.safetensors",
            s.weights);
    else if (listed && *s.gguf)
        snprintf(text, text_bytes, "%s is, and .gguf files are not read: the checkpoint that it was made of is needed",
                 s.gguf);
    else if (listed && *s.pickle)
        snprintf(text, text_bytes,
                 "%s is, and .bin, .pt and .pth files, being pickle, are never opened: save the model as safetensors "
                 "(save_pretrained of transformers does)",
                 s.pickle);
    else
        snprintf(text, text_bytes, "no other weights are");
}

void folder_no_tokenizer(const char *path, char *text, size_t text_bytes)
{
    struct seen s;
    const char *made =
        "tokenizer.json is needed (AutoTokenizer.from_pretrained and save_pretrained of transformers make one)";
    bool listed = look(path, &s);
    if (listed && s.tokenizer_model)
        snprintf(text, text_bytes, "tokenizer.model (SentencePiece) is there, which is not read; %s", made);
    else if (listed && s.tekken)
        snprintf(text, text_bytes, "tekken.json (Mistral) is there, which is not read; %s", made);
    else if (listed && exists(path, "vocab.json") && exists(path, "merges.txt"))
        snprintf(text, text_bytes, "vocab.json and merges.txt are there, which are not read; %s", made);
    else
        snprintf(text, text_bytes, "the model cannot be served without it");
}
