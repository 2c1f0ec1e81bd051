#include "server/cmd/tune.h"
#include "base/log.h"
#include "engine/model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MATRICES_MAX = 64 };

static const char usage[] =
    "usage: spillway tune --model DIR | --shape NAME\n\n"
    "Times every algorithm that cuBLASLt offers for the model's matrices on this GPU, checks its numbers, and writes the fastest to a\n"
    "file that 'spillway serve' reads when it starts.\n\n"
    "  --model DIR                a model folder; its config.json alone is read\n"
    "  --shape NAME               ";
static const char usage_rest[] =
    " (instead of --model)\n"
    "  --output FILE              where to write; default: a file in the user's cache folder, named after GPU and library\n"
    "  --tensor-parallel-size N   ranks that share the matrices (default 1)\n"
    "  --enable-expert-parallel   each of them has some experts whole\n"
    "  --dtype NAME               bfloat16 (default) or float16\n"
    "  --gpu N                    which GPU (default 0)\n"
    "  --candidates N             algorithms tried per matrix and number of rows, at most 32 (default 16)\n"
    "  --rows N                   most rows of a step, as in --max-num-batched-tokens (default 8192)\n"
    "  --runs N                   timed runs of each (default 20)\n"
    "  --cublaslt FILE            the library; default: libcublasLt.so.13 or .12\n";

struct tune_opts {
    const char *model, *shape, *output, *dtype, *cublaslt;
    uint32_t    ranks, gpu, candidates, rows, runs;
    bool        expert_parallel;
};

static bool number(const char *s, uint32_t *out)
{
    char         *end;
    unsigned long v = strtoul(s, &end, 10);
    if (*s < '0' || *s > '9' || *end || v > 1000000) return false;
    *out = (uint32_t)v;
    return true;
}

static int refuse(const char *what, const char *value)
{
    fprintf(stderr, "spillway tune: %s%s%s; see spillway tune --help\n", what, *value ? ": found " : "", value);
    return EXIT_USAGE;
}

static int parse(struct tune_opts *o, int argc, char **argv)
{
    struct {
        const char  *name;
        const char **text;
        uint32_t    *n;
        bool        *flag; /* without a value */
    } row[] = { { "--model", .text = &o->model },
                { "--shape", .text = &o->shape },
                { "--output", .text = &o->output },
                { "--dtype", .text = &o->dtype },
                { "--cublaslt", .text = &o->cublaslt },
                { "--tensor-parallel-size", .n = &o->ranks },
                { "--gpu", .n = &o->gpu },
                { "--candidates", .n = &o->candidates },
                { "--rows", .n = &o->rows },
                { "--runs", .n = &o->runs },
                { "--enable-expert-parallel", .flag = &o->expert_parallel } };
    *o = (struct tune_opts){ .dtype = "bfloat16", .ranks = 1, .candidates = 16, .rows = 8192, .runs = 20 };
    for (int i = 1; i < argc; i++) {
        size_t      k = 0, n = strcspn(argv[i], "=");
        const char *v = argv[i][n] ? argv[i] + n + 1 : NULL;
        while (k < sizeof row / sizeof *row && (strlen(row[k].name) != n || strncmp(argv[i], row[k].name, n) != 0)) k++;
        if (k == sizeof row / sizeof *row) return refuse("unknown option", argv[i]);
        if (row[k].flag) {
            if (v) return refuse("no value is allowed", argv[i]);
            *row[k].flag = true;
            continue;
        }
        if (!v && ++i < argc) v = argv[i];
        if (!v) return refuse("a value is missing after", row[k].name);
        if (row[k].text) *row[k].text = v;
        if (row[k].n && !number(v, row[k].n)) return refuse(row[k].name, v);
    }
    if (!o->model == !o->shape) return refuse("needed is either --model or --shape", "");
    if (strcmp(o->dtype, "bfloat16") != 0 && strcmp(o->dtype, "float16") != 0) return refuse("--dtype", o->dtype);
    if (!o->ranks || !o->candidates || !o->rows || !o->runs) return refuse("a number is 0 that must not be", "");
    return 0;
}

static void line(void *ctx, const char *text)
{
    (void)ctx;
    puts(text);
    fflush(stdout);
}

int tune_main(int argc, char **argv)
{
    struct tune_opts  o;
    struct source     src = { .dummy = true };
    struct model_spec spec;
    struct dev_matrix matrix[MATRICES_MAX];
    char              err[600], path[400];
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            printf("%s%s%s", usage, model_shape_names(), usage_rest);
            return 0;
        }
    int code = parse(&o, argc, argv);
    if (code) return code;
    log_init(LOG_LEVEL_WARN, STDERR_FILENO, false);
    if (o.shape && !model_shape(o.shape, &src)) {
        fprintf(stderr, "spillway tune: --shape: found %s, there are %s\n", o.shape, model_shape_names());
        return EXIT_USAGE;
    }
    if (o.model) src.dir = o.model;
    enum status st = model_spec_load(&src, &spec, err, sizeof err);
    if (!st && (st = model_check(&spec, &src, o.ranks, o.expert_parallel, err, sizeof err))) model_spec_free(&spec);
    if (st) {
        fprintf(stderr, "spillway tune: %s\n", err);
        return EXIT_CONFIG;
    }
    struct dev_tune_cfg cfg = { .act = !strcmp(o.dtype, "float16") ? DT_F16 : DT_BF16,
                                .ordinal = (int)o.gpu,
                                .matrix = matrix,
                                .n_matrix = model_matrices(&spec, o.ranks, o.expert_parallel, matrix, MATRICES_MAX),
                                .n_candidate = o.candidates,
                                .rows_max = o.rows,
                                .runs = o.runs,
                                .output = o.output,
                                .cublaslt = o.cublaslt,
                                .line = line };
    model_spec_free(&spec);
    st = dev_tune(&cfg, path, sizeof path);
    if (st == ST_IO) return EXIT_IO;
    if (st) return st == ST_CONFIG ? EXIT_CONFIG : EXIT_SOFTWARE;
    printf("written: %s\n", path);
    return 0;
}
