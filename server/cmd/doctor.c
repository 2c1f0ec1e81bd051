#include "server/cmd/doctor.h"
#include "base/status.h"
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: spillway doctor [--json] [DIR]...\n\n"
    "Looks at what this machine gives a server, and at folders that --kv-nvme, --kv-shared, --packed-cache or --model will name.\n"
    "One line each: ok, warn or fail, what was found, and what to do about it. Exit code: 1 where something failed, else 0.\n\n"
    "  --json    one object: {\"checks\": [{\"name\", \"state\", \"found\", \"fix\"}], \"ok\", \"warn\", \"fail\"}\n";

void doctor_look(struct doctor *d, const char *const *dir, uint32_t n_dir)
{
    buf_init(&d->out, 1 << 20);
    if (d->json) buf_puts(&d->out, "{\"checks\": [");
    doctor_libraries(d);
    doctor_host(d);
    for (uint32_t i = 0; i < n_dir; i++) doctor_folder(d, dir[i]);
    if (d->json)
        buf_printf(&d->out, "\n], \"ok\": %u, \"warn\": %u, \"fail\": %u}\n", d->n[DOCTOR_OK], d->n[DOCTOR_WARN],
                   d->n[DOCTOR_FAIL]);
    else
        buf_printf(&d->out, "%u ok, %u warn, %u fail\n", d->n[DOCTOR_OK], d->n[DOCTOR_WARN], d->n[DOCTOR_FAIL]);
}

int doctor_main(int argc, char **argv)
{
    struct doctor d = { .root = "" };
    const char   *dir[16];
    uint32_t      n_dir = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(usage, stdout);
            return 0;
        }
        if (!strcmp(argv[i], "--json")) {
            d.json = true;
        } else if (argv[i][0] == '-') {
            fprintf(stderr, "spillway doctor: unknown option: found %s; see spillway doctor --help\n", argv[i]);
            return EXIT_USAGE;
        } else if (n_dir == sizeof dir / sizeof *dir) {
            fprintf(stderr, "spillway doctor: at most %zu folders at a time\n", sizeof dir / sizeof *dir);
            return EXIT_USAGE;
        } else {
            dir[n_dir++] = argv[i];
        }
    }
    doctor_look(&d, dir, n_dir);
    fputs(buf_cstr(&d.out), stdout);
    buf_free(&d.out);
    return d.n[DOCTOR_FAIL] ? 1 : 0;
}
