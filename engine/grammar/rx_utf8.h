/* rx_utf8: expressions for characters, as UTF-8 spells them (RFC 3629: shortest forms alone, no surrogates).
 * Thread and errors: as in rx.h. */
#pragma once
#include "engine/grammar/rx.h"

enum { RX_CODE_POINT_MAX = 0x10FFFF };

/* One character from `from` to `to`, both included. */
uint32_t rx_of_chars(struct rx *x, uint32_t from, uint32_t to);
/* One character that needs no escape in a JSON string: any but '"', '\\' and the characters below a space. Left out are
 * others about which grammars say more: '<', with which markers begin in text that stands for itself, U+2028 and
 * U+2029, which a pattern's dot does not match (ECMA-262); and U+007F, which models hardly write. */
uint32_t rx_json_plain(struct rx *x);
