/* fuzz_safetensors: any bytes as a weights file, or as an index beside a good one. What is taken lies within its
 * file. */
#include "base/check.h"
#include "base/log.h"
#include "engine/model/safetensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    return 0;
}

static void look(const struct source_embed *files, uint32_t n_file)
{
    static const struct st_set *const none = NULL;
    struct source                     src = { .embed = files, .n_embed = n_file };
    struct st_set                    *set = NULL;
    char                              err[256] = "", shape[64];
    if (st_open(&src, &set, err, sizeof err)) {
        CHECK(set == none);
        CHECK(err[0]);
        return;
    }
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const struct st_tensor *t = &set->tensor[i];
        CHECK(t->file < set->n_file);
        uint64_t bytes = set->file[t->file].bytes;
        CHECK(t->offset <= bytes);
        CHECK(t->bytes <= bytes - t->offset);
        st_shape_text(t, shape, sizeof shape);
    }
    st_close(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const unsigned char good[] =
        "\x36\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}  1234";
    struct source_embed weights[] = { { "model.safetensors", data, n } };
    struct source_embed index[] = { { "model.safetensors.index.json", data, n },
                                    { "m.safetensors", good, sizeof good - 1 } };
    look(weights, 1);
    look(index, 2);
    return 0;
}
