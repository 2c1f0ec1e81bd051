#include "base/utf8.h"
#include <string.h>

bool utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        uint32_t cp, len = utf8_decode(s + i, n - i, &cp);
        if (!len) return false;
        i += len;
    }
    return true;
}
