/* config_events: reads --kv-events-config, a JSON object with the fields of vLLM's option of that name.   Thread:
 * main. */
#pragma once
#include "kvcache/events/events.h"

struct config_events {
    bool                 on;
    struct kv_events_cfg cfg; /* its texts lie in this struct, which must not move */
    char                 endpoint[256], replay[256], topic[256];
};

/* text "": events are off. Returns 0, or an exit code with one line in err. */
int config_events_read(const char *text, struct config_events *out, char *err, size_t err_bytes);
