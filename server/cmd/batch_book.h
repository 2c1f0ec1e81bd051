/* batch_book: the output of a batch and what is known of it: which lines are answered, by which run. Beside OUTPUT lies
 * OUTPUT.batch, a JSON object that says what the output was made from. An output is continued only if all of that is
 * the same.
 *   batch_book_open -> batch_book_begin (once the model is known) -> batch_book_put* -> batch_book_close   Thread: one owner.
 *
 * Answers are appended, each by one write, so a kill leaves at most a torn last line, which batch_book_begin cuts off.
 * The order of what happens to the files: the output is empty, OUTPUT.batch is replaced as a whole, answers are
 * appended. */
#pragma once
#include "base/buf.h"
#include "server/cmd/batch_line.h"
#include "server/cmd/batch_seen.h"
#include <jansson.h>

struct batch_book {
    const char       *output, *errors;    /* paths; errors "": failed lines stand in the output too */
    int               out, err;           /* err: the same as out without errors */
    bool              restart, resumable; /* resumable: neither input nor output is a pipe */
    char              run[BATCH_RUN_BYTES];
    struct batch_seen seen;
    uint64_t          n_before, n_before_failed; /* lines that were answered before this start */
    char              why[700];                  /* one line: why a function failed */
};

/* Opens the outputs and locks them, and changes nothing. output "-": stdout. 0, or an exit code with b->why. */
int batch_book_open(struct batch_book *b, const char *output, const char *errors, bool restart, bool input_is_file);
/* made_from: what the answers depend on, as strings and objects of strings; borrowed. Refuses an output that was made
 * from anything else, unless `restart`; else reads which lines it answers. last: made_from is complete; without it, it
 * is only compared, so that a refusal comes before a model is loaded. 0, or an exit code with b->why. */
int batch_book_begin(struct batch_book *b, const json_t *made_from, bool last);
/* Appends one line of output that answers `line`. good: it is an answer with status 200. 0, or EXIT_IO with b->why. */
int batch_book_put(struct batch_book *b, uint64_t line, bool good, const struct buf *text);
/* Waits until everything is on the disk. 0, or EXIT_IO with b->why. */
int  batch_book_sync(struct batch_book *b);
void batch_book_close(struct batch_book *b); /* also after a failed batch_book_open */
