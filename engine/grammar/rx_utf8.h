/* rx_utf8: expressions for characters, as UTF-8 spells them (RFC 3629: shortest forms alone, no surrogates).
 * Thread and errors: as in rx.h. */
#pragma once
#include "engine/grammar/rx.h"

enum { RX_CODE_POINT_MAX = 0x10FFFF };

/* One character from `from` to `to`, both included. */
uint32_t rx_of_chars(struct rx *x, uint32_t from, uint32_t to);
/* One character that needs no escape in a JSON string: any but '"', '\\' and the characters below a space; U+007F is
 * left out too, because models hardly write it. */
uint32_t rx_json_plain(struct rx *x);
