/* tok_vocab: finds tokens by text and by id. There are two tables of strings (tok_strs): the texts of tokenizer.json
 * and, for byte-level vocabularies, the bytes that these stand for.
 * init -> add* -> (find, get)* -> free.   Thread: one while it is filled; const and shared afterwards. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOK_ID_BOUND = 1 << 24, TOK_NONE = -1 }; /* ids are below the bound */

/* A slot has the offset of the string, and the string's id and length lie in front of its bytes. So a look-up misses
 * the cache twice, not three times. */
struct tok_slot {
    uint32_t hash, at; /* at: offset in tok_strs.text; 0: an empty slot */
};
struct tok_strs {
    char            *text; /* for each string: struct tok_str, the bytes, NUL */
    size_t           n_text, text_cap;
    uint32_t        *at; /* [n_id] offset of the string's bytes in text; 0: no such id */
    uint32_t         n_id, id_cap, n;
    struct tok_slot *slot;
    uint32_t         slot_mask;
};
struct tok_str {
    uint32_t id, n;
};

/* An empty table, and the return of its memory. */
bool tok_strs_init(struct tok_strs *t, size_t n_expect); /* n_expect: likely number of strings. False: out of memory */
void tok_strs_free(struct tok_strs *t);
enum tok_add { TOK_ADDED, TOK_ADD_TEXT_TWICE, TOK_ADD_ID_TWICE, TOK_ADD_NO_MEMORY };
/* Adds the text s[0..n), which is copied, under an id. Anything but TOK_ADDED leaves the table as it was. */
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

/* The table of byte-level vocabularies, which write each byte as one printable character. */
extern const uint16_t tok_byte_char[256];
int                   tok_char_byte(uint32_t cp); /* the byte; -1: cp is not in the table */
/* Writes the bytes that a byte-level text stands for into out[n]; returns their number, or -1 if a character is not in
 * the table. */
int64_t tok_byte_level_decode(const char *s, size_t n, char *out);
size_t  tok_byte_level_encode(const char *s, size_t n, char *out); /* writes into out[2 n]; returns bytes written */
