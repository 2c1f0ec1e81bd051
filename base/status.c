#include "base/status.h"

const char *status_name(enum status st)
{
    switch (st) {
    case ST_OK: return "ok";
    case ST_AGAIN: return "again";
    case ST_INVALID: return "invalid";
    case ST_TOO_LARGE: return "too large";
    case ST_CANCELED: return "canceled";
    case ST_TIMEOUT: return "timeout";
    case ST_NOT_FOUND: return "not found";
    case ST_STEP: return "step";
    case ST_IO: return "io";
    case ST_PEER_LOST: return "peer lost";
    case ST_NOMEM: return "no memory";
    case ST_DEVICE: return "device";
    case ST_CONFIG: return "config";
    case ST_BROKEN: return "broken";
    }
    return "unknown";
}
