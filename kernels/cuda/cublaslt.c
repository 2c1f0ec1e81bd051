#include "kernels/cuda/cublaslt.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifdef CUDA_EMU

enum status cublaslt_load(const char *path, struct cublaslt *out, char *err, size_t err_bytes)
{
    if (path && *path) {
        snprintf(err, err_bytes, "cuBLASLt: %s is not there, the emulator has one of its own", path);
        return ST_NOT_FOUND;
    }
    *out = emu_cublaslt;
    return ST_OK;
}

#else

static const struct {
    const char *name;
    size_t      at;
} symbols[] = {
    { "cublasLtGetVersion", offsetof(struct cublaslt, version) },
    { "cublasLtCreate", offsetof(struct cublaslt, create) },
    { "cublasLtDestroy", offsetof(struct cublaslt, destroy) },
    { "cublasLtMatrixLayoutInit_internal",
      offsetof(struct cublaslt, layout_init) }, /* what the header's inline Init calls */
    { "cublasLtMatmulDescInit_internal", offsetof(struct cublaslt, desc_init) },
    { "cublasLtMatmulDescSetAttribute", offsetof(struct cublaslt, desc_set) },
    { "cublasLtMatmulPreferenceInit_internal", offsetof(struct cublaslt, pref_init) },
    { "cublasLtMatmulPreferenceSetAttribute", offsetof(struct cublaslt, pref_set) },
    { "cublasLtMatmulAlgoGetHeuristic", offsetof(struct cublaslt, heuristic) },
    { "cublasLtMatmulAlgoCheck", offsetof(struct cublaslt, check) },
    { "cublasLtMatmulAlgoConfigGetAttribute", offsetof(struct cublaslt, config_get) },
    { "cublasLtMatmul", offsetof(struct cublaslt, matmul) },
};

static enum status take(void *lib, const char *name, struct cublaslt *out, char *err, size_t err_bytes)
{
    struct cublaslt lt = { .version = NULL };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f) {
            snprintf(err, err_bytes, "cuBLASLt: %s has no %s", name, symbols[i].name);
            dlclose(lib);
            return ST_NOT_FOUND;
        }
        memcpy((char *)&lt + symbols[i].at, &f, sizeof f);
    }
    size_t v = lt.version(); /* 120304 or, from 13 on, 130100: major * 10000 + minor * 100 + patch */
    if (v < 120000) {
        snprintf(err, err_bytes, "cuBLASLt: %s is version %zu, needed is 120000 or later", name, v);
        dlclose(lib);
        return ST_NOT_FOUND;
    }
    *out = lt;
    return ST_OK;
}

enum status cublaslt_load(const char *path, struct cublaslt *out, char *err, size_t err_bytes)
{
    static const char *const usual[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "/usr/local/cuda/lib64/libcublasLt.so.13",
                                         "/usr/local/cuda/lib64/libcublasLt.so.12" };
    bool                     given = path && *path;
    if (given && !strcmp(path, "none")) {
        snprintf(err, err_bytes, "cuBLASLt: switched off by option");
        return ST_NOT_FOUND;
    }
    for (size_t i = 0; i < (given ? 1 : sizeof usual / sizeof *usual); i++) {
        const char *name = given ? path : usual[i];
        void       *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (lib) return take(lib, name, out, err, err_bytes);
    }
    if (given) {
        const char *why = dlerror();
        snprintf(err, err_bytes, "cuBLASLt: %s", why ? why : path);
    } else {
        snprintf(err, err_bytes, "cuBLASLt: no libcublasLt.so.13 or .12 in the loader's path or /usr/local/cuda/lib64");
    }
    return ST_NOT_FOUND;
}

#endif
