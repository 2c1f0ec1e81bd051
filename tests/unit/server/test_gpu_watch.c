/* gpu_watch: which news of which GPUs asks for what. */
#include "base/log.h"
#include "server/gpu_watch.h"
#include "test.h"
#include <string.h>

/* Two GPUs, on the buses 1 and 2; ours is the first. */
static struct gpu_watch   watch;
static struct nvml_sample sample;

static int open_two(void **state)
{
    (void)state;
    watch = (struct gpu_watch){ .lone = true };
    gpu_watch_own(&watch, &(struct dev_place){ 0, 1, 0 });
    sample = (struct nvml_sample){ .n_gpu = 2 };
    for (uint32_t i = 0; i < 2; i++) {
        sample.gpu[i].placed = true;
        sample.gpu[i].place = (struct dev_place){ 0, i + 1, 0 };
    }
    return 0;
}

static void report(uint32_t gpu, uint64_t number)
{
    struct nvml_events_of *e = &sample.gpu[gpu].act[xid_find(number)->act];
    e->n++;
    e->xid = number;
}

static enum gpu_says turn(void)
{
    const char *why = "";
    return gpu_watch_turn(&watch, &sample, &why);
}

static void each_xid_asks_for_what_its_row_says(void **state)
{
    static const struct {
        uint64_t      number;
        enum gpu_says says;
    } row[] = {
        { 13, GPU_ASK },     { 31, GPU_ASK },    { 43, GPU_ASK },     { 45, GPU_ASK },     { 48, GPU_BROKEN },
        { 63, GPU_WELL },    { 64, GPU_DRAIN },  { 74, GPU_WELL },    { 79, GPU_BROKEN },  { 92, GPU_WELL },
        { 94, GPU_RESTART }, { 95, GPU_BROKEN }, { 119, GPU_BROKEN }, { 120, GPU_BROKEN }, { 12345, GPU_WELL }
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        open_two(state);
        report(0, row[i].number);
        assert_int_equal(turn(), row[i].says);
    }
}

static void news_of_a_gpu_that_is_not_ours_asks_for_nothing(void **state)
{
    (void)state;
    report(1, 95);
    report(1, 13);
    sample.gpu[1].lost = true;
    assert_int_equal(turn(), GPU_WELL);
    watch.n_own = 0;
    report(0, 95);
    assert_int_equal(turn(), GPU_WELL);
}

static void a_gpu_in_another_domain_or_slot_is_another_one(void **state)
{
    (void)state;
    report(0, 95);
    sample.gpu[0].place.domain = 7;
    assert_int_equal(turn(), GPU_WELL);
    sample.gpu[0].place = (struct dev_place){ 0, 1, 3 };
    assert_int_equal(turn(), GPU_WELL);
    sample.gpu[0].place.slot = 0;
    sample.gpu[0].placed = false;
    assert_int_equal(turn(), GPU_WELL);
    sample.gpu[0].placed = true;
    assert_int_equal(turn(), GPU_BROKEN);
}

static void a_link_matters_where_ranks_use_it(void **state)
{
    (void)state;
    report(0, 74);
    assert_int_equal(turn(), GPU_WELL);
    watch.lone = false;
    assert_int_equal(turn(), GPU_BROKEN);
}

static void the_gravest_of_several_decides_and_stays(void **state)
{
    const char *why = "";
    (void)state;
    gpu_watch_own(&watch, &(struct dev_place){ 0, 2, 0 });
    gpu_watch_own(&watch, &(struct dev_place){ 0, 2, 0 }); /* two ranks on one GPU */
    assert_int_equal(watch.n_own, 2);
    report(0, 64);
    assert_int_equal(turn(), GPU_DRAIN);
    report(0, 94);
    assert_int_equal(turn(), GPU_RESTART);
    sample.gpu[1].lost = true;
    assert_int_equal(gpu_watch_turn(&watch, &sample, &why), GPU_BROKEN);
    assert_non_null(strstr(why, "does not reach"));
    report(0, 13);
    assert_int_equal(turn(), GPU_BROKEN);
    assert_int_equal(turn(), GPU_BROKEN);
}

static void a_failed_program_is_asked_about_once(void **state)
{
    (void)state;
    report(0, 31);
    report(0, 45);
    assert_int_equal(turn(), GPU_ASK);
    assert_int_equal(turn(), GPU_WELL);
    report(0, 43);
    assert_int_equal(turn(), GPU_ASK);
    assert_int_equal(turn(), GPU_WELL);
}

static void more_gpus_than_can_be_watched_are_left_out(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3 * NVML_GPUS_MAX; i++) gpu_watch_own(&watch, &(struct dev_place){ 1, i, 0 });
    assert_int_equal(watch.n_own, NVML_GPUS_MAX);
    assert_int_equal(turn(), GPU_WELL);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_xid_asks_for_what_its_row_says),
        cmocka_unit_test_setup(news_of_a_gpu_that_is_not_ours_asks_for_nothing, open_two),
        cmocka_unit_test_setup(a_gpu_in_another_domain_or_slot_is_another_one, open_two),
        cmocka_unit_test_setup(a_link_matters_where_ranks_use_it, open_two),
        cmocka_unit_test_setup(the_gravest_of_several_decides_and_stays, open_two),
        cmocka_unit_test_setup(a_failed_program_is_asked_about_once, open_two),
        cmocka_unit_test_setup(more_gpus_than_can_be_watched_are_left_out, open_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
