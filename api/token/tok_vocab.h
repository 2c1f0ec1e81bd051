/* tok_vocab: tokens by text and by id. A table of strings (tok_strs) is used twice: for the texts of tokenizer.json
 * and, for byte-level vocabularies, for the bytes they stand for.
 * init -> add* -> (find, get)* -> free.   Thread: one while filling; const and shared afterwards. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOK_ID_BOUND = 1 << 24, TOK_NONE = -1 }; /* ids are below the bound */

/* A slot leads straight to the string, which has its id and length in front of it: a look-up misses the cache twice,
 * not three times. */
struct tok_slot {
    uint32_t hash, at; /* at 0: empty */
};
struct tok_strs {
    char            *text; /* id, n, the bytes, NUL; and so on */
    size_t           n_text, text_cap;
    uint32_t        *at; /* [n_id] where its bytes begin in text; 0: no such id */
    uint32_t         n_id, id_cap, n;
    struct tok_slot *slot;
    uint32_t         slot_mask;
};
struct tok_str {
    uint32_t id, n;
};

bool tok_strs_init(struct tok_strs *t, size_t n_expect); /* false: no memory, here and below */
void tok_strs_free(struct tok_strs *t);
enum tok_add { TOK_ADDED, TOK_ADD_TEXT_TWICE, TOK_ADD_ID_TWICE, TOK_ADD_NO_MEMORY };
enum tok_add              tok_strs_add(struct tok_strs *t, const char *s, size_t n, uint32_t id);
int64_t                   tok_strs_find(const struct tok_strs *t, const char *s, size_t n);  /* id or TOK_NONE */
static inline const char *tok_strs_get(const struct tok_strs *t, uint32_t id, size_t *n_out) /* NULL: no such id */
{
    if (id >= t->n_id || !t->at[id]) return NULL;
    struct tok_str head;
    memcpy(&head, t->text + t->at[id] - sizeof head, sizeof head);
    *n_out = head.n;
    return t->text + t->at[id];
}

/* The table of byte-level vocabularies: each byte is written as one printable character. */
extern const uint16_t tok_byte_char[256];
int                   tok_char_byte(uint32_t cp); /* -1: no character of that table */
/* The bytes that a byte-level text stands for, into out[n]; -1 when a character is outside the table. */
int64_t tok_byte_level_decode(const char *s, size_t n, char *out);
size_t  tok_byte_level_encode(const char *s, size_t n, char *out); /* into out[2 n]; returns how many */
