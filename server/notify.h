/* notify: sends the state of the server to a service manager, as datagrams to the socket that $NOTIFY_SOCKET names
 * (systemd's protocol, which its manual promises to keep). Without that variable it sends nothing. A failed send is
 * logged and has no other effect.
 * notify_open -> notify_say, notify_tick -> notify_close.   Thread: main. */
#pragma once
#include <stdint.h>

struct notify {
    int      fd;         /* -1: nothing is sent */
    uint64_t every_us;   /* time between two signs of life; 0: the manager expects none */
    uint64_t t_alive_us; /* time of the last one */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. If NOTIFY_SOCKET cannot be used, logs that and sends nothing. */
void notify_open(struct notify *n);
/* Sends lines of assignments, without a line end after the last: "READY=1\nSTATUS=serving". At most 500 bytes. */
void notify_say(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sends a sign of life if one is due, which is twice in the time that the manager waits for one. */
void notify_tick(struct notify *n, uint64_t now_us);
void notify_close(struct notify *n);
