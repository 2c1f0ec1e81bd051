#include "server/cmd/plan.h"
#include "base/json.h"
#include "base/log.h"
#include "server/config_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: spillway plan [--model DIR] [--gpu NAME] [--context TOKENS] [--concurrency N] [--memory-gib N] [--json] [option of serve]...\n\n"
    "Says what a model takes, how many sequences of the context fit, and how many tokens/s the roofline allows. config.json and the\n"
    "headers of the weights are read, nothing else; no GPU is needed. Exit code: 0 it fits, 78 it does not, and what would is said.\n\n"
    "  --gpu NAME          ";
static const char usage_rest[] =
    ";\n"
    "                      without it the plan is for this machine's CPU, whose speed is to be measured\n"
    "  --context TOKENS    --max-model-len: prompt and answer of a sequence (default: what the model allows)\n"
    "  --concurrency N     --max-num-seqs: sequences at one time\n"
    "  --memory-gib N      of the CPU's machine, instead of what this process may use\n"
    "  --json              one object; bytes are of one rank\n"
    "Options of serve that matter: --tensor-parallel-size, --enable-expert-parallel, --quantization, --dtype,\n"
    "--kv-cache-dtype, --block-size, --max-num-batched-tokens, --gpu-memory-utilization\n";

enum { ARGS_MAX = 64, WOULD_MAX = 12, WOULD_BYTES = 120 };
struct asked {
    const struct plan_gpu *gpu;
    uint64_t               memory_bytes;
    bool                   json;
    struct config          cfg;
};
/* What would fit instead. */
struct would {
    char     text[WOULD_MAX][WOULD_BYTES];
    uint32_t n;
};

static int refuse(const char *what, const char *found, const char *allowed)
{
    fprintf(stderr, "spillway plan: %s%s%s%s%s; see spillway plan --help\n", what, *found ? ": found " : "", found,
            *allowed ? ", allowed are " : "", allowed);
    return EXIT_USAGE;
}

/* True if argument i is this option. *value_out: the text behind '=', or the next argument (then *next_out); NULL:
 * there is no value. */
static bool is_option(const char *name, char **argv, int i, int argc, char **value_out, bool *next_out)
{
    size_t n = strlen(name);
    if (strncmp(argv[i], name, n) != 0 || (argv[i][n] && argv[i][n] != '=')) return false;
    *next_out = !argv[i][n];
    *value_out = i + 1 < argc ? argv[i + 1] : NULL;
    if (argv[i][n]) *value_out = argv[i] + n + 1;
    return true;
}

/* Reads argument i if it is an option of this command. *used_out: the number of arguments that it takes; 0: it is none.
 * An option that the server has under another name is passed on under that name. */
static int take_own(struct asked *a, char **argv, int i, int argc, char *rest[2], int *n_rest, int *used_out)
{
    static const char *const renamed[][2] = { { "--context", "--max-model-len" },
                                              { "--concurrency", "--max-num-seqs" } };
    char                    *value = NULL, *end;
    bool                     next = false;
    *used_out = *n_rest = 0;
    if (!strcmp(argv[i], "--json")) {
        a->json = true;
        *used_out = 1;
        return 0;
    }
    bool gpu = is_option("--gpu", argv, i, argc, &value, &next);
    bool memory = !gpu && is_option("--memory-gib", argv, i, argc, &value, &next);
    for (size_t k = 0; !gpu && !memory && k < 2; k++)
        if (is_option(renamed[k][0], argv, i, argc, &value, &next))
            rest[(*n_rest)++] = (char *)(uintptr_t)renamed[k][1];
    if (!gpu && !memory && !*n_rest) return 0;
    if (!value) return refuse("a value is missing after", argv[i], "");
    *used_out = next ? 2 : 1;
    if (*n_rest) rest[(*n_rest)++] = value;
    if (gpu && !(a->gpu = plan_gpu_find(value))) return refuse("--gpu", value, plan_gpu_names());
    if (!memory) return 0;
    double gib = strtod(value, &end);
    if (end == value || *end || !(gib > 0 && gib < 1e6)) return refuse("--memory-gib", value, "numbers above 0");
    a->memory_bytes = (uint64_t)(gib * 1073741824.0);
    return 0;
}

static int parse(struct asked *a, int argc, char **argv)
{
    char *rest[ARGS_MAX + 3], err[400];
    int   n = 0, code = 0;
    rest[n++] = argv[0];
    for (int i = 1, used; !code && i < argc; i += used ? used : 1) {
        int more = 0;
        if (n >= ARGS_MAX) return refuse("too many arguments", "", "");
        code = take_own(a, argv, i, argc, rest + n, &more, &used);
        n += more;
        if (!code && !used) rest[n++] = argv[i];
    }
    if (code) return code;
    if (a->gpu && a->memory_bytes) return refuse("--memory-gib is for the CPU; a GPU has what it has", "", "");
    rest[n] = NULL;
    code = config_parse(&a->cfg, n, rest, NULL, err, sizeof err);
    if (code) fprintf(stderr, "spillway plan: %s\n", err);
    return code;
}

/* ---- what would fit instead ---- */

static void add(struct would *w, const char *fmt, uint64_t a, const char *b)
{
    if (w->n == WOULD_MAX) return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(w->text[w->n++], WOULD_BYTES, fmt, a, b);
#pragma GCC diagnostic pop
}

/* True if the model fits with these options. */
static bool fits_with(const struct boot *b, const struct config *cfg, const struct plan_gpu *gpu, uint64_t memory)
{
    struct boot     other = *b; /* only its spec and source are read */
    struct plan_fit f;
    other.cfg = cfg;
    return !plan_fit(&other, gpu, memory, &f) && f.fits;
}

/* Does it fit with another value of an option? */
static bool fits_so(const struct asked *a, const struct boot *b, const char *option, const char *value)
{
    const struct opt *o = option_find(option, strlen(option));
    struct config     c = a->cfg;
    char              why[200];
    return !config_set(&c, o, value, o->name, why, sizeof why) &&
           fits_with(b, &c, a->gpu, a->gpu ? 0 : a->memory_bytes);
}

static void look_for_others(const struct asked *a, const struct boot *b, const struct plan_fit *f, struct would *w)
{
    static const char *const codes[] = { "int8", "int4", "int4-all" };
    static const char *const larger[] = { "l40s", "a100", "h100", "h200", "b200" };
    uint64_t                 context = f->n_block ? (f->n_block - 1) / f->wanted * b->cfg->block_size : 0;
    if (f->n_seq) add(w, "--concurrency %" PRIu64 "%s", f->n_seq, "");
    if (context >= 1024) add(w, "--context %" PRIu64 "%s", context, "");
    for (uint32_t n = 2 * f->n_rank; a->gpu && n <= 16; n *= 2) {
        struct config c = a->cfg;
        c.tensor_parallel = n;
        if (!fits_with(b, &c, a->gpu, 0)) continue;
        add(w, "--tensor-parallel-size %" PRIu64 "%s", n, "");
        break;
    }
    if (a->cfg.kv_dtype != DT_F8E4M3 && fits_so(a, b, "kv-cache-dtype", "fp8"))
        add(w, "--kv-cache-dtype%.0" PRIu64 " %s", 0, "fp8");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (!fits_so(a, b, "quantization", codes[i])) continue;
        add(w, "--quantization%.0" PRIu64 " %s", 0, codes[i]);
        break;
    }
    for (size_t i = 0; a->gpu && i < sizeof larger / sizeof *larger; i++) {
        const struct plan_gpu *g = plan_gpu_find(larger[i]);
        if (g->memory_bytes <= a->gpu->memory_bytes || !fits_with(b, &a->cfg, g, 0)) continue;
        add(w, "--gpu%.0" PRIu64 " %s", 0, g->name);
        break;
    }
    if (!a->gpu) add(w, "--memory-gib %" PRIu64 "%s", (f->needed_bytes * f->n_rank * 32 / 31 >> 30) + 1, "");
}

/* ---- what is said ---- */

/* "15.26 GiB", "2.25 MiB", "144 KiB" */
struct size_text {
    char s[24];
};
static struct size_text size(uint64_t bytes)
{
    static const struct {
        uint64_t    unit;
        const char *name;
    } unit[] = { { (uint64_t)1 << 30, "GiB" }, { 1 << 20, "MiB" }, { 1 << 10, "KiB" }, { 1, "bytes" } };
    struct size_text t;
    size_t           i = 0;
    while (i < 3 && bytes < unit[i].unit) i++;
    snprintf(t.s, sizeof t.s, "%.*f %s", i == 3 ? 0 : 2, (double)bytes / (double)unit[i].unit, unit[i].name);
    return t;
}

static void say_speed(const struct asked *a, const struct plan_fit *f)
{
    if (!a->gpu) {
        printf("\n  tokens/s of a CPU are to be measured: build/release/tools/bench_engine --help\n");
        return;
    }
    printf("\n  at most %.0f tokens/s for one sequence, %.0f for %u of them (bound by %s), prompts %.0f tokens/s\n",
           f->one_s, f->all_s, f->wanted, f->memory_bound ? "memory" : "arithmetic", f->prefill_s);
    printf("  by the datasheet's %.2f TB/s and %.0f TFLOP/s; good servers reach 60 to 80 %% of that\n",
           a->gpu->bytes_s / 1e12, a->gpu->flop_s / 1e12);
}

static void say_text(const struct asked *a, const struct boot *b, const struct plan_fit *f, const struct would *w)
{
    struct model_work mw = model_work(&b->spec, 1);
    const char       *each = f->n_rank > 1 ? " on each" : "";
    printf("%s, %u layers, %.2f M parameters (%.2f M for a token), quantization %s\n", b->spec.family->arch,
           b->spec.n_layer, mw.params / 1e6, mw.active / 1e6, option_word("quantization", b->cfg->quantization));
    printf("%s, %u rank%s, %s to be used%s\n\n", a->gpu ? a->gpu->name : "cpu", f->n_rank, f->n_rank == 1 ? "" : "s",
           size(f->usable_bytes).s, each);
    printf("  weights      %12s%s\n", size(f->m.weight_bytes).s, each);
    printf("  workspace    %12s%s%s\n", size(f->m.work_bytes).s, each,
           a->gpu ? " (the GPU's own arrays in it are estimated)" : "");
    if (b->cfg->expert_parallel && f->n_rank > 1)
        printf("  experts      %12u of %u%s\n", b->spec.n_expert / f->n_rank, b->spec.n_expert, each);
    printf("  KV           %12s a token in %s, %s a block of %u, %s a sequence of %u%s\n",
           size(f->m.block_bytes / b->cfg->block_size).s, dtype_name(f->kv), size(f->m.block_bytes).s,
           b->cfg->block_size, size(f->seq_blocks * f->m.block_bytes).s, f->context, each);
    if (f->n_window)
        printf("  windows      %12s a token of the last %u, %s a block, %s a sequence%s\n",
               size(f->m.window_bytes / b->cfg->block_size).s, b->windows.window, size(f->m.window_bytes).s,
               size(f->seq_windows * f->m.window_bytes).s, each);
    printf("  left for KV  %12s: %" PRIu64 " blocks, %" PRIu64 " sequences of %u tokens\n", size(f->kv_bytes).s,
           f->n_block, f->n_seq, f->context);
    if (f->n_window) printf("               %" PRIu64 " blocks of windows\n", f->n_window);
    say_speed(a, f);
    if (f->fits) {
        printf("\n%u sequences of %u tokens fit\n", f->wanted, f->context);
        return;
    }
    printf("\n%u sequences of %u tokens do not fit: needed are %s%s, can be used %s", f->wanted, f->context,
           size(f->needed_bytes).s, each, size(f->usable_bytes).s);
    for (uint32_t i = 0; i < w->n; i++) printf("%s%s", i ? ", or " : "; what would: ", w->text[i]);
    putchar('\n');
}

static void say_json(const struct asked *a, const struct boot *b, const struct plan_fit *f, const struct would *w)
{
    struct buf o;
    buf_init(&o, 1 << 16);
    buf_puts(&o, "{\"architecture\": ");
    json_put_str(&o, b->spec.family->arch, strlen(b->spec.family->arch));
    buf_printf(&o,
               ", \"device\": \"%s\", \"ranks\": %u, \"quantization\": \"%s\", \"context\": %u, \"concurrency\": %u",
               a->gpu ? a->gpu->name : "cpu", f->n_rank, option_word("quantization", b->cfg->quantization), f->context,
               f->wanted);
    const struct {
        const char *name;
        uint64_t    v;
    } n[] = { { "usable_bytes", f->usable_bytes },
              { "weight_bytes", f->m.weight_bytes },
              { "work_bytes", f->m.work_bytes },
              { "block_tokens", b->cfg->block_size },
              { "block_bytes", f->m.block_bytes },
              { "token_bytes", f->m.block_bytes / b->cfg->block_size },
              { "window_block_bytes", f->m.window_bytes },
              { "sequence_bytes", f->seq_blocks * f->m.block_bytes + f->seq_windows * f->m.window_bytes },
              { "kv_bytes", f->kv_bytes },
              { "blocks", f->n_block },
              { "window_blocks", f->n_window },
              { "sequences", f->n_seq },
              { "needed_bytes", f->needed_bytes } };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) buf_printf(&o, ", \"%s\": %" PRIu64, n[i].name, n[i].v);
    if (a->gpu) {
        const struct {
            const char *name;
            double      v;
        } s[] = { { "tokens_per_second_one", f->one_s },
                  { "tokens_per_second", f->all_s },
                  { "prompt_tokens_per_second", f->prefill_s } };
        for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
            buf_printf(&o, ", \"%s\": ", s[i].name);
            json_put_num(&o, s[i].v);
        }
        buf_printf(&o, ", \"bound\": \"%s\"", f->memory_bound ? "memory" : "arithmetic");
    }
    buf_printf(&o, ", \"fits\": %s, \"would_fit\": [", f->fits ? "true" : "false");
    for (uint32_t i = 0; i < w->n; i++) {
        if (i) buf_puts(&o, ", ");
        json_put_str(&o, w->text[i], strlen(w->text[i]));
    }
    buf_puts(&o, "]}\n");
    fputs(buf_cstr(&o), stdout);
    buf_free(&o);
}

static int answer(const struct asked *a, struct boot *b)
{
    struct plan_fit f;
    struct would    w = { .n = 0 };
    int             code = boot_spec(b, &a->cfg);
    if (!code) code = plan_fit(b, a->gpu, a->memory_bytes, &f);
    if (code) {
        fprintf(stderr, "spillway plan: %s\n", b->err);
        return code;
    }
    if (!f.fits) look_for_others(a, b, &f, &w);
    if (a->json)
        say_json(a, b, &f, &w);
    else
        say_text(a, b, &f, &w);
    return f.fits ? 0 : EXIT_CONFIG;
}

int plan_main(int argc, char **argv)
{
    struct asked a = { .json = false };
    struct boot  b = { .cfg = NULL };
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            printf("%s%s%s", usage, plan_gpu_names(), usage_rest);
            return 0;
        }
    log_init(LOG_LEVEL_ERROR, STDERR_FILENO, false);
    int code = parse(&a, argc, argv);
    if (!code) code = answer(&a, &b);
    boot_free(&b);
    config_free(&a.cfg);
    return code;
}
