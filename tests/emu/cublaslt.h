/* cublaslt: the emulated library, what a test may look at and set.   C17 and C++17. Thread: before devices work. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What it offers, by id. SPLIT adds two halves of K through the workspace: other bits than PLAIN. WIDE wants 16-byte
 * rows. WRONG and DRIFT, when switched on, are its first choice for every problem: one forgets a column, the other adds
 * up in another order from `drift` rows on, and says nothing of that. */
enum emu_lt_algo { EMU_LT_PLAIN, EMU_LT_SPLIT, EMU_LT_WIDE, EMU_LT_WRONG, EMU_LT_DRIFT, EMU_LT_ALGOS };

struct emu_lt_state {
    bool     wrong;       /* offer WRONG                                                          */
    uint32_t wrong_from;  /* it is wrong from so many rows on, and right below                     */
    bool     strange;     /* it takes no description of a matrix, as one with larger structs would */
    uint32_t drift;       /* offer DRIFT, from so many rows on; 0: do not                          */
    bool     refuse;      /* matmul says no, as a library does whose algorithm does not fit       */
    uint32_t n_heuristic; /* how often it was asked: not between load and close                   */
    uint32_t n_matmul;
    uint32_t n_misuse; /* layouts, types, addresses or workspaces that do not fit; each is told on stderr */
};
extern struct emu_lt_state emu_lt;

#ifdef __cplusplus
}
#endif
