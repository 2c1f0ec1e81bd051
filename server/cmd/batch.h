/* batch: `spillway batch`: runs a file of OpenAI batch lines through the routes, dialects and engine of the server,
 * without a socket. A line's answer is what a POST of its body would bring.   Thread: main. */
#pragma once

enum {
    BATCH_EXIT_FAILED = 1,   /* all lines are answered, some by an error */
    BATCH_EXIT_STOPPED = 75, /* ended by a signal; the same command continues */
};

/* argv[0] is "batch". Returns 0, one of these codes, or another exit code with the reason on stderr. */
int batch_main(int argc, char **argv);
