#include "engine/model/place.h"
#include "test.h"

enum { HEADS = 3, HEAD_MAX = 128, ROWS_MAX = HEADS * HEAD_MAX };

/* Where a row of a head goes: even rows of the rotating part, odd ones, the rest. */
static uint32_t place_of(uint32_t row, uint32_t head, uint32_t rot)
{
    uint32_t in = row % head;
    return in < rot ? row - in + in % 2 * (rot / 2) + in / 2 : row;
}

/* Every way of cutting a job into pieces of one size, from every row on, puts every row into the same place. */
static void pieces_of_any_size_put_rows_where_pairs_become_halves(void **state)
{
    (void)state;
    static const uint32_t heads[][2] = { { 6, 6 }, { 6, 4 }, { 16, 16 }, { 16, 8 }, { 128, 128 }, { 128, 64 } };
    for (size_t i = 0; i < ARRAY_N(heads); i++) {
        uint32_t         head = heads[i][0], rot = heads[i][1], rows = HEADS * head;
        struct place_job job = { .n_row = rows, .head = head, .rot = rot };
        for (uint32_t size = 1; size <= rows; size++) {
            bool taken[ROWS_MAX] = { false };
            for (uint32_t piece = 0; piece < rows; piece += size) {
                uint32_t end = piece + size < rows ? piece + size : rows;
                for (uint32_t row = piece, n_run; row < end;) {
                    struct place_run run[3];
                    uint32_t         n = 0, used = place_runs(&job, row, end - row, run, &n_run);
                    assert_in_range(used, 1, end - row);
                    for (uint32_t r = 0; r < n_run; r++)
                        for (uint32_t k = 0; k < run[r].n; k++, n++) {
                            uint32_t src = run[r].src + k * run[r].step, dst = run[r].dst + k;
                            assert_in_range(src, row, row + used - 1);
                            assert_int_equal(dst, place_of(src, head, rot));
                            assert_false(taken[dst]);
                            taken[dst] = true;
                        }
                    assert_int_equal(n, used);
                    row += used;
                }
            }
            for (uint32_t row = 0; row < rows; row++) assert_true(taken[row]);
        }
    }
}

static void rows_of_other_jobs_stay_in_their_order(void **state)
{
    (void)state;
    struct place_job job = { .n_row = 100 };
    struct place_run run[3];
    uint32_t         n_run;
    assert_int_equal(place_runs(&job, 7, 50, run, &n_run), 50);
    assert_int_equal(n_run, 1);
    assert_int_equal(run[0].src, 7);
    assert_int_equal(run[0].dst, 7);
    assert_int_equal(run[0].n, 50);
    assert_int_equal(run[0].step, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pieces_of_any_size_put_rows_where_pairs_become_halves),
                                        cmocka_unit_test(rows_of_other_jobs_stay_in_their_order) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
