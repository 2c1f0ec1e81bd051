/* fuzz_sagemaker: any variables of a container and any serving.properties beside its model. The options that come of
 * them are within their bounds, or one line says which variable is wrong.
 * The input is lines. The first byte of a line picks where its text stands (a prefix of a variable, the file, or as it
 * is), the second the name of an option, so that few bytes reach each of them; the rest is the value. */
#include "base/check.h"
#include "base/status.h"
#include "server/config.h"
#include "server/options.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { LINES_MAX = 40, LINE_BYTES = 4096, PLACES = 12, AS_IT_IS = 255 };
/* "": a line of serving.properties as it is; "option.": with a name before it. */
static const char *const place[PLACES] = {
    "SM_VLLM_",   "SM_SPILLWAY_", "SM_SGLANG_",   "SM_LLAMA_CPP_",           "OPTION_", "SERVING_",
    "SAGEMAKER_", "SPILLWAY_",    "HF_MODEL_ID=", "TENSOR_PARALLEL_DEGREE=", "option.", "",
};
static const char *const others[] = { "MODEL_ID",
                                      "TENSOR_PARALLEL_DEGREE",
                                      "MAX_ROLLING_BATCH_SIZE",
                                      "QUANTIZE",
                                      "TGI_COMPAT",
                                      "OUTPUT_FORMATTER",
                                      "ROLLING_BATCH",
                                      "BIND_TO_PORT",
                                      "SESSIONS_EXPIRATION",
                                      "ENABLE_STATEFUL_SESSIONS",
                                      "CONTAINER_LOG_LEVEL",
                                      "JOB_QUEUE_SIZE" };
static char              folder[64], properties[128];

static void clear_up(void)
{
    char model[96];
    snprintf(model, sizeof model, "%s/model", folder);
    (void)unlink(properties);
    (void)rmdir(model);
    (void)rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char model[96];
    (void)argc;
    (void)argv;
    snprintf(folder, sizeof folder, "%s/spillway-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    CHECK(mkdtemp(folder));
    snprintf(model, sizeof model, "%s/model", folder);
    CHECK(!mkdir(model, 0700));
    snprintf(properties, sizeof properties, "%s/serving.properties", model);
    CHECK(!atexit(clear_up));
    return 0;
}

/* The name that a byte picks: an option's, or one of LMI's or the platform's; in capitals with '_'. */
static size_t pick(uint8_t which, char *out, size_t n_out)
{
    uint32_t          n, n_other = sizeof others / sizeof *others;
    const struct opt *o = options_table(&n);
    uint32_t          i = which % (n + n_other);
    const char       *name = i < n ? o[i].name : others[i - n];
    size_t            k = 0;
    for (; name[k] && k + 1 < n_out; k++) out[k] = name[k] == '-' ? '_' : (char)toupper((unsigned char)name[k]);
    out[k] = 0;
    return k;
}

/* One line of the input as text of its place. Returns its bytes, at most LINE_BYTES - 1. */
static size_t spell(const char *where, const uint8_t *line, size_t n, char *out)
{
    size_t at = (size_t)snprintf(out, LINE_BYTES, "%s", where);
    bool   whole = !*where || where[at - 1] == '='; /* what follows is the value */
    if (!whole && n && line[0] != AS_IT_IS) {
        at += pick(line[0], out + at, LINE_BYTES - at - 2);
        out[at++] = '=';
    }
    size_t skip = whole || !n ? 0 : 1;
    size_t k = n - skip < LINE_BYTES - 1 - at ? n - skip : LINE_BYTES - 1 - at;
    memcpy(out + at, line + skip, k);
    out[at + k] = 0;
    return at + k;
}

/* One line in err, and every number within the bounds of its row. */
static void look(const struct config *c, int code, const char *err)
{
    uint32_t          n;
    const struct opt *o = options_table(&n);
    if (code) {
        CHECK(code == EXIT_USAGE);
        CHECK(*err);
        for (const char *p = err; *p; p++) CHECK((unsigned char)*p >= ' ' && *p != 127);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const void *at = (const char *)c + o[i].at;
        if (o[i].type == OPT_STR) CHECK(*(const char *const *)at);
        if (o[i].type == OPT_NUM) {
            double v = *(const double *)at;
            CHECK(v >= o[i].min && v <= o[i].max);
        }
        if (o[i].type == OPT_LIST) {
            const struct str_list *l = at;
            for (uint32_t k = 0; k < l->n; k++) CHECK(l->s[k] && *l->s[k]);
        }
    }
    for (uint32_t i = 0; i < c->told.n; i++) CHECK(c->told.s[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char   text[LINES_MAX][LINE_BYTES], where[96];
    char         *env[LINES_MAX + 3], *argv[] = { (char *)(uintptr_t) "spillway", (char *)(uintptr_t) "serve", NULL };
    int           n_env = 0, n_text = 0;
    char          err[400] = "", again[400] = "";
    struct config c = { .host = NULL };
    int           fd = open(properties, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    env[n_env++] = (char *)(uintptr_t) "SPILLWAY_SAGEMAKER=on";
    snprintf(where, sizeof where, "SPILLWAY_SAGEMAKER_FOLDER=%s", folder);
    env[n_env++] = where;
    for (const uint8_t *p = data, *end = data + n; p < end && n_text < LINES_MAX;) {
        const uint8_t *stop = memchr(p, '\n', (size_t)(end - p));
        size_t         k = (size_t)((stop ? stop : end) - p);
        const char    *at = place[*p % PLACES];
        if (k) {
            size_t len = spell(at, p + 1, k - 1, text[n_text]);
            if (!*at || islower((unsigned char)*at)) {
                CHECK(write(fd, text[n_text], len) == (ssize_t)len && write(fd, "\n", 1) == 1);
            } else if (strncmp(text[n_text], "SPILLWAY_SAGEMAKER", 18) != 0 &&
                       strncmp(text[n_text], "SPILLWAY_CONFIG", 15) != 0) {
                env[n_env++] = text[n_text++]; /* files of the machine are nothing to fuzz with */
            }
        }
        p = stop ? stop + 1 : end;
    }
    env[n_env] = NULL;
    close(fd);
    int code = config_parse(&c, 2, argv, env, err, sizeof err);
    look(&c, code, err);
    config_free(&c);
    CHECK(config_parse(&c, 2, argv, env, again, sizeof again) == code); /* nothing is left behind of the first time */
    CHECK(!strcmp(err, again));
    config_free(&c);
    return 0;
}
