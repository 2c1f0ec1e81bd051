/* log: levels, one line per event, "area: what, numbers, what happens next".   Thread: any.
 * error: we stop serving; warn: degraded; info: life cycle; debug: per object; trace: per step.
 * Control bytes, and anything else outside printable UTF-8, are escaped, so that no user string can forge a line.
 * A full pipe never blocks a stream: the line is dropped and counted (log_dropped). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVEL_TRACE };

extern enum log_level log_level_max; /* default INFO */

/* fd: where lines go (default 2, stderr); json: one JSON object per line instead of text. */
void     log_init(enum log_level max, int fd, bool json);
uint64_t log_dropped(void);
void     log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define LOG_AT(lv, ...)                                         \
    do {                                                        \
        if ((lv) <= log_level_max) log_line((lv), __VA_ARGS__); \
    } while (0)
#define LOG_ERROR(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)
#define LOG_WARN(...)  LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_INFO(...)  LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_DEBUG(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define LOG_TRACE(...) LOG_AT(LOG_LEVEL_TRACE, __VA_ARGS__)

/* At most one line per second and call site. The next line reports how many were left out. */
#define LOG_WARN_LIMITED(...)                                       \
    do {                                                            \
        static struct log_limit log_limit_here;                     \
        if (log_limit_pass(&log_limit_here)) LOG_WARN(__VA_ARGS__); \
    } while (0)
/* The same at info, with bursts: at most n lines per second and call site. */
#define LOG_INFO_BURST(n, ...)                                                                              \
    do {                                                                                                    \
        static struct log_burst log_burst_here;                                                             \
        if (log_level_max >= LOG_LEVEL_INFO && log_burst_pass(&log_burst_here, (n))) LOG_INFO(__VA_ARGS__); \
    } while (0)
struct log_burst {
    _Atomic uint64_t second, n_here, n_swallowed;
};
/* True for the first per_second lines of each second. The others are counted, and a line says how many there were. */
bool log_burst_pass(struct log_burst *l, uint64_t per_second);
struct log_limit {
    _Atomic uint64_t next_us, n_swallowed;
};
/* True at most once a second; the others are counted, and a line says how many there were. */
bool log_limit_pass(struct log_limit *l);
