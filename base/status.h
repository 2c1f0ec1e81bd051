/* status: the one error code of the house, grouped by the size of the loss.   Thread: any. */
#pragma once

enum status {
    ST_OK = 0,
    ST_AGAIN = 1,      /* nothing is lost: try later                                  */
    ST_INVALID = -1,   /* this request: a value that is not allowed                    */
    ST_TOO_LARGE = -2, /* this request: over a bound                                   */
    ST_CANCELED = -3,  /* this request: its owner cancelled it                         */
    ST_TIMEOUT = -4,   /* this request: its deadline has passed                        */
    ST_NOT_FOUND = -5, /* this request: no such thing                                  */
    ST_STEP = -6,      /* these requests: the device could not run their step, and goes on with others */
    ST_IO = -20,       /* this block, this file                                        */
    ST_PEER_LOST = -21,
    ST_NOMEM = -40,  /* this process: restart                                          */
    ST_DEVICE = -41, /* this process: the device does not answer or answers nonsense   */
    ST_CONFIG = -42, /* this process: its options, model or machine do not fit together */
    ST_BROKEN = -43, /* this machine: the device itself is gone or damaged             */
};

/* Exit codes of the process (sysexits.h numbers). */
enum exit_code {
    EXIT_USAGE = 64,
    EXIT_SOFTWARE = 70,
    EXIT_HARDWARE = 71,
    EXIT_IO = 74,
    EXIT_PERM = 77,
    EXIT_CONFIG = 78
};

/* "ok", "again", "invalid", ...; never NULL. */
const char *status_name(enum status st);
