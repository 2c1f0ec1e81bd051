/* hex: the value of one hexadecimal digit. Thread: any. */
#pragma once

/* 0 to 15, of a digit in either case; -1: c is none. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}
