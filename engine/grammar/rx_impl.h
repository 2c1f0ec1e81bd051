/* rx_impl: the structs of a set of expressions. Private to rx*.c.   Thread: as in rx.h. */
#pragma once
#include "base/chain.h"
#include "engine/grammar/rx.h"

enum rx_kind { RX_K_NONE, RX_K_EMPTY, RX_K_CLASS, RX_K_CAT, RX_K_OR, RX_K_AND, RX_K_NOT, RX_K_REPEAT, RX_K_MULTIPLE };
enum rx_void { RX_VOID_UNKNOWN, RX_VOID_NO, RX_VOID_YES };

struct rx_node {
    uint8_t  kind;
    bool     nullable;
    bool     plain;   /* without intersection and complement: void only if it is RX_NONE */
    bool     finite;  /* its texts are known to be finitely many */
    uint8_t  is_void; /* enum rx_void */
    uint32_t depth;   /* of the recursion of rx_derive */
    uint32_t need;    /* about how many bytes a text has at least */
    int32_t  link;
    uint32_t a,
        b; /* CLASS: number of the class; CAT, NOT, REPEAT: operands; OR, AND: first operand in kid[], and how many */
    uint64_t sign[2];  /* rx_sign of this one */
    uint32_t min, max; /* REPEAT; MULTIPLE: of min, and the remainder so far is max */
};

struct rx_memo {
    uint32_t of, result; /* of: 0: no entry; RX_NONE needs none */
    uint8_t  kind;
};
enum { RX_MEMO = 2048 };

struct rx {
    struct rx_node *node;
    uint32_t        n_node, node_room;
    struct rx_class *class;
    uint32_t         n_class, class_room;
    uint32_t        *kid;
    uint32_t         n_kid, kid_room;
    struct chain     chain; /* over node[0, node_room) */
    struct rx_limits limits;
    uint64_t         fuel;
    enum status      st;
    uint32_t         n_kind;
    uint8_t          rep[256]; /* a byte of each kind */
    struct rx_memo   memo[RX_MEMO];
};

void rx_fail(struct rx *x, enum status st); /* the first failure stays */
/* array_grow. false: rx_fail was told. */
bool rx_grow(struct rx *x, void **array, uint32_t n_used, uint32_t n, uint32_t *n_room, size_t bytes);
/* Takes n units; false when the set has failed or fails now. */
bool rx_burn(struct rx *x, uint64_t n);
/* The digits that are still to come behind some that leave this remainder of m. */
uint32_t rx_remainder(struct rx *x, uint32_t m, uint32_t remainder);
