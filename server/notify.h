/* notify: tells a service manager how the server stands, by datagrams to the socket that $NOTIFY_SOCKET names
 * (systemd's protocol, which its manual promises to keep). Without that variable nothing is told. A manager that does not
 * listen is no reason to stop serving.   Life: notify_open -> notify_say, notify_tick -> notify_close. Thread: main. */
#pragma once
#include <stdint.h>

struct notify {
    int      fd;       /* -1: nobody is told */
    uint64_t every_us; /* a sign of life is due so often; 0: nobody waits for one */
    uint64_t t_alive_us;
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. What they say is wrong is logged and means that nobody is told. */
void notify_open(struct notify *n);
/* Lines of assignments without a line end behind the last: "READY=1\nSTATUS=serving". At most 500 bytes. */
void notify_say(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sends a sign of life when one is due: twice in the time that the manager waits for it. */
void notify_tick(struct notify *n, uint64_t now_us);
void notify_close(struct notify *n);
