/* safetensors: the positions of tensors in files; only headers are read here.   Thread: one while opening, any after.
 * st_open (one file, or the files of the index) -> read tensor[] -> st_close. A file is accepted only if its tensors
 * cover it exactly, without overlap, hole or rest. So [offset, offset + bytes) of a tensor always lies inside the file
 * (format: github.com/huggingface/safetensors, README). */
#pragma once
#include "engine/model/source.h"

/* Types that a loader can convert, and OTHER for the rest of the format. */
enum st_dtype {
    ST_DT_F32,
    ST_DT_BF16,
    ST_DT_F16,
    ST_DT_F8E4M3,
    ST_DT_I32,
    ST_DT_I8,
    ST_DT_U8,
    ST_DT_OTHER, /* legal, see dtype_text; refused only if the model needs the tensor */
};
enum { ST_RANK_MAX = 8, ST_HEADER_BYTES_MAX = 100000000 };

struct st_tensor {
    const char   *name;
    char          dtype_text[16];
    enum st_dtype dtype;
    uint32_t      rank, file; /* file: index into st_set.file */
    uint64_t      shape[ST_RANK_MAX];
    uint64_t      offset, bytes; /* in the file */
};
struct st_set {
    struct source_file *file;
    uint32_t            n_file;
    struct st_tensor   *tensor; /* in order of file and offset */
    uint32_t            n_tensor;
    struct st_names    *names; /* storage of the names */
};

/* Opens the files of model.safetensors.index.json, or else model.safetensors. err: one line with file, offset or key,
 * reason. ST_CONFIG: the files are wrong; ST_IO: they could not be read. */
enum status st_open(const struct source *src, struct st_set **set_out, char *err, size_t err_bytes);
void        st_close(struct st_set *set);
/* "[64, 32]"; returns text */
const char *st_shape_text(const struct st_tensor *t, char *text, size_t text_bytes);
