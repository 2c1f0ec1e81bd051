/* rx_utf8: expressions for characters, as UTF-8 spells them (RFC 3629: shortest forms alone, no surrogates).
 * Thread and errors: as in rx.h. */
#pragma once
#include "engine/grammar/rx.h"

enum { RX_CODE_POINT_MAX = 0x10FFFF };

/* One character from `from` to `to`, both ends among them. */
uint32_t rx_of_chars(struct rx *x, uint32_t from, uint32_t to);
/* One character that stands for itself within a JSON string: anything but '"', '\\' and what is below a space; and not
 * U+007F, so that the ASCII part is what models write. */
uint32_t rx_json_plain(struct rx *x);
