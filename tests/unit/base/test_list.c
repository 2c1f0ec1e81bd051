#include "test.h"
#include "base/list.h"

struct item {
    int         n;
    struct list node;
};

static int sum_in_order(struct list *head)
{
    int v = 0;
    LIST_EACH(it, head) v = v * 10 + LIST_ENTRY(it, struct item, node)->n;
    return v;
}

static void items_keep_their_order_and_leave_from_anywhere(void **state)
{
    (void)state;
    struct list head;
    struct item it[4];
    list_init(&head);
    assert_true(list_empty(&head));
    for (int i = 0; i < 4; i++) it[i].n = i + 1;
    list_add_tail(&head, &it[1].node);
    list_add_tail(&head, &it[2].node);
    list_add_head(&head, &it[0].node);
    list_add_tail(&head, &it[3].node);
    assert_int_equal(sum_in_order(&head), 1234);
    list_del(&it[2].node);
    assert_int_equal(sum_in_order(&head), 124);
    list_del(&it[2].node); /* an unlinked one points to itself */
    assert_int_equal(sum_in_order(&head), 124);
    list_del(&it[0].node);
    list_del(&it[3].node);
    assert_int_equal(sum_in_order(&head), 2);
}

static void the_current_item_may_be_removed_while_walking(void **state)
{
    (void)state;
    struct list head;
    struct item it[5];
    list_init(&head);
    for (int i = 0; i < 5; i++) {
        it[i].n = i + 1;
        list_add_tail(&head, &it[i].node);
    }
    LIST_EACH(p, &head)
        if (LIST_ENTRY(p, struct item, node)->n % 2) list_del(p);
    assert_int_equal(sum_in_order(&head), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_keep_their_order_and_leave_from_anywhere),
        cmocka_unit_test(the_current_item_may_be_removed_while_walking),
    };
    return cmocka_run_group_tests_name("base/list", tests, NULL, NULL);
}
