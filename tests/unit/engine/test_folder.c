#include "engine/model/folder.h"
#include "base/log.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"
#include "test.h"
#include <sys/stat.h>

/* A folder with these files; "name=text" has that text, others are empty; "name/" is a folder. */
static void make(char *dir, const char *const *files, size_t n)
{
    strcpy(dir, "/tmp/spillway-folder-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < n && files[i]; i++) {
        char        path[512];
        const char *text = strchr(files[i], '=');
        int         len = text ? (int)(text - files[i]) : (int)strlen(files[i]);
        snprintf(path, sizeof path, "%s/%.*s", dir, len, files[i]);
        for (char *slash = strchr(path + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
            *slash = 0;
            mkdir(path, 0700);
            *slash = '/';
        }
        if (path[strlen(path) - 1] == '/') continue;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        if (text) fputs(text + 1, f);
        fclose(f);
    }
}

static void says(const char *text, const char *a, const char *b)
{
    if (!strstr(text, a)) fail_msg("\"%s\" does not say \"%s\"", text, a);
    if (!strstr(text, b)) fail_msg("\"%s\" does not say \"%s\"", text, b);
    assert_null(strchr(text, '\n'));
}

enum { FILES_MAX = 4 };

static void the_error_for_a_folder_without_a_model_lists_its_contents_and_the_needed_files(void **state)
{
    (void)state;
    static const struct {
        const char *files[FILES_MAX];
        const char *found, *needed;
    } cases[] = {
        { { "adapter_config.json={\"base_model_name_or_path\": \"org/base-7b\"}", "adapter_model.safetensors" },
          "which holds a PEFT adapter of \"org/base-7b\" (adapter_config.json) and no model",
          "the folder of the base model, and beside it --enable-lora" },
        { { "adapter_config.json=not JSON", "tokenizer.json" },
          "holds a PEFT adapter (adapter_config.json) and no model",
          "--lora-modules NAME=DIR" },
        { { "b-q8.gguf", "a-q4.gguf" },
          "holds GGUF files (a-q4.gguf), which are not read",
          "config.json, tokenizer.json and model.safetensors" },
        { { "params.json={}", "consolidated.safetensors", "tekken.json" },
          "holds a model in Mistral's own format (params.json, consolidated.safetensors)",
          "config.json, tokenizer.json" },
        { { "params.json={}", "consolidated.00.pth" }, "Mistral's own format (params.json)", "config.json" },
        { { "tokenizer.model" }, "holds tokenizer.model but no config.json", "needed are config.json" },
        { { "tekken.json" }, "holds tekken.json but no config.json", "needed are config.json" },
        { { "model.safetensors" }, "holds model.safetensors but no config.json", "needed are config.json" },
        { { NULL }, "is empty", "needed are config.json" },
        { { "notes.txt" }, "holds no model", "needed are config.json" },
        { { "checkpoint-500/config.json={}" }, "has config.json only a level below, in checkpoint-500", "give that" },
        { { "refs/main=abc", "snapshots/abc/config.json={}" },
          "folder of a hub's cache; the model is in its snapshots/abc",
          "give that" },
        { { "a/config.json={}", "b/config.json={}" }, "in a and others", "give one of them" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char              dir[64], text[512], err[1024];
        struct source     src = { .dir = dir };
        struct model_spec spec;
        make(dir, cases[i].files, FILES_MAX);
        assert_true(folder_no_model(dir, text, sizeof text));
        assert_int_equal(model_spec_load(&src, &spec, err, sizeof err), ST_NOT_FOUND);
        says(err, "config.json: no such file in /tmp/spillway-folder-", text);
        says(err, cases[i].found, cases[i].needed);
    }
}

static void a_file_is_no_folder(void **state)
{
    (void)state;
    static const char *const files[FILES_MAX] = { "x.gguf", "model.safetensors", "pytorch_model.bin",
                                                  "config.json={}" };
    static const char *const found[FILES_MAX] = { "is a GGUF file, which is not read", "is one file of a model",
                                                  "is a pickle file, which is never opened", "is a file" };
    char                     dir[64], path[512], text[512];
    make(dir, files, FILES_MAX);
    for (int i = 0; i < FILES_MAX; i++) {
        snprintf(path, sizeof path, "%s/%.*s", dir, (int)strcspn(files[i], "="), files[i]);
        assert_true(folder_no_model(path, text, sizeof text));
        says(text, found[i], "needed is the folder of a model with config.json");
    }
    assert_false(folder_no_model(dir, text, sizeof text)); /* config.json is there */
    assert_string_equal(text, "");
    assert_false(folder_no_model("/nowhere/at/all", text, sizeof text));
}

static void the_error_for_missing_weights_names_the_files_that_are_there(void **state)
{
    (void)state;
    static const struct {
        const char *files[FILES_MAX];
        const char *found;
    } cases[] = {
        { { "config.json={}" }, "no other weights are" },
        { { "config.json={}", "pytorch_model.bin" },
          "pytorch_model.bin is, and .bin, .pt and .pth files, being pickle, are never opened" },
        { { "config.json={}", "x.gguf" }, "x.gguf is, and .gguf files are not read" },
        { { "config.json={}", "adapter_model.safetensors" }, "an adapter's weights are (adapter_model.safetensors)" },
        { { "config.json={}", "consolidated.safetensors" },
          "consolidated.safetensors is: such names need model.safetensors.index.json" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char           dir[64], err[1024];
        struct source  src = { .dir = dir };
        struct st_set *set;
        make(dir, cases[i].files, FILES_MAX);
        assert_int_equal(st_open(&src, &set, err, sizeof err), ST_CONFIG);
        says(err, "neither model.safetensors nor model.safetensors.index.json is there, but ", cases[i].found);
    }
}

static void the_error_for_a_missing_tokenizer_names_the_other_tokenizer_in_the_folder(void **state)
{
    (void)state;
    static const struct {
        const char *files[FILES_MAX];
        const char *found;
    } cases[] = {
        { { "tokenizer.model" },
          "tokenizer.model (SentencePiece) is there, which is not read; tokenizer.json is needed" },
        { { "tekken.json" }, "tekken.json (Mistral) is there, which is not read; tokenizer.json is needed" },
        { { "vocab.json", "merges.txt" }, "vocab.json and merges.txt are there" },
        { { "config.json={}" }, "the model cannot be served without it" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char dir[64], text[512];
        make(dir, cases[i].files, FILES_MAX);
        folder_no_tokenizer(dir, text, sizeof text);
        says(text, cases[i].found, "");
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, -1, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_for_a_folder_without_a_model_lists_its_contents_and_the_needed_files),
        cmocka_unit_test(a_file_is_no_folder),
        cmocka_unit_test(the_error_for_missing_weights_names_the_files_that_are_there),
        cmocka_unit_test(the_error_for_a_missing_tokenizer_names_the_other_tokenizer_in_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
