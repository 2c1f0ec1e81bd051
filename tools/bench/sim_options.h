/* sim_options: the command line of the simulations of fleets. An option is a row with a range, or one of the few that
 * the simulation reads itself (lists, words, flags). Included by one source each. */
#pragma once
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* An option that takes one number. */
struct sim_option {
    const char *name, *help;
    double      lo, hi;
};

enum { SIM_LIST_MAX = 16 };

/* Ends the program with status 2. what: the option or the file; why: a few words. */
static void sim_stop(const char *program, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program, what, why);
    exit(2);
}

/* Reads numbers from lo to hi with commas between them into out, which has SIM_LIST_MAX entries. Returns how many. A
 * text that is no such list ends the program; `wanted` says what each number is, behind "up to 16". */
static int sim_list(const char *program, const char *name, const char *text, double lo, double hi, const char *wanted,
                    double *out)
{
    int n = 0;
    for (const char *p = text; n < SIM_LIST_MAX; p++) {
        char *end;
        out[n] = strtod(p, &end);
        if (end == p || !(out[n] >= lo && out[n] <= hi)) break;
        n++;
        if (!*end) return n;
        if (*end != ',') break;
        p = end;
    }
    fprintf(stderr, "%s: --%s: found \"%s\", wanted up to %d %s with commas between them\n", program, name, text,
            SIM_LIST_MAX, wanted);
    exit(2);
}

/* Prints a line of --help for each of the n rows, with the value that it has now. */
static void sim_help(const struct sim_option *option, const double *value, int n)
{
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "--%s N", option[i].name);
        printf("  %-26s %s (%.10g)\n", name, option[i].help, value[i]);
    }
}

/* Fills l, which has n + n_more + 1 entries, for getopt_long: the n rows, then the names in `more`. The first n_with of
 * those take a word. */
static void sim_long_options(const struct sim_option *option, int n, const char *const *more, int n_more, int n_with,
                             struct option *l)
{
    for (int i = 0; i < n + n_more; i++) {
        bool has_word = i < n + n_with;
        l[i] = (struct option){ .name = i < n ? option[i].name : more[i - n],
                                .has_arg = has_word ? required_argument : no_argument };
    }
    l[n + n_more] = (struct option){ 0 };
}

/* Reads the word of a row. A word that is no number of the row's range ends the program. */
static double sim_number(const char *program, const struct sim_option *row, const char *word)
{
    char  *end;
    double v = strtod(word, &end);
    if (*word && !*end && v >= row->lo && v <= row->hi) return v;
    fprintf(stderr, "%s: --%s: found \"%s\", allowed are %g to %g\n", program, row->name, word, row->lo, row->hi);
    exit(2);
}

/* qsort's order of doubles, ascending. */
static int sim_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
