#include "tests/support/leak_check.h"

#include <stdlib.h>
#include <string.h>

#include "server/order.h"

#define QUEUES 4
#define HOLDERS 24
#define CLAIMS 5
#define STEPS 200000

/* ---------------------------------------------------------------- by hand */

/** A holder with one claim. */
struct single {
    struct order_holder holder;
    struct order_claim claim;
};

static bool single_enter(struct single *single, struct order_queue *queue, uint64_t shards,
                         bool write)
{
    *single = (struct single){.claim = {.queue = queue, .shards = shards, .write = write}};
    single->holder.claims = &single->claim;
    single->holder.count = 1;
    return order_enter(&single->holder);
}

/** Two claims after each other: whether the second is granted at once. */
static void claims_conflict_when_they_share_a_shard_and_one_writes(void **state)
{
    (void)state;
    static const struct {
        uint64_t first_shards, second_shards;
        bool first_writes, second_writes, granted;
    } rows[] = {
        {ORDER_ALL, ORDER_ALL, false, false, true},
        {ORDER_ALL, ORDER_ALL, false, true, false},
        {ORDER_ALL, ORDER_ALL, true, false, false},
        {ORDER_ALL, ORDER_ALL, true, true, false},
        {1, 2, true, true, true},
        {1, 1, true, true, false},
        {1, 3, false, true, false},
        {1, ORDER_ALL, true, false, false},
        {1, ORDER_ALL, false, false, true},
        {UINT64_C(1) << 63, 1, true, true, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct order_queue queue = {0};
        struct single first, second;
        assert_true(single_enter(&first, &queue, rows[i].first_shards, rows[i].first_writes));
        bool granted = single_enter(&second, &queue, rows[i].second_shards, rows[i].second_writes);
        assert_int_equal(granted, rows[i].granted);
        struct order_holder *next = order_leave(&first.holder);
        assert_ptr_equal(next, granted ? NULL : &second.holder);
        assert_null(order_leave(&second.holder));
        assert_null(queue.first);
        assert_int_equal(queue.writers + queue.waiting, 0);
    }
}

static void a_reader_does_not_pass_a_writer_that_waits(void **state)
{
    (void)state;
    struct order_queue queue = {0};
    struct single reader, writer, late;
    assert_true(single_enter(&reader, &queue, ORDER_ALL, false));
    assert_false(single_enter(&writer, &queue, ORDER_ALL, true));
    assert_false(single_enter(&late, &queue, ORDER_ALL, false));
    assert_ptr_equal(order_leave(&reader.holder), &writer.holder);
    assert_ptr_equal(order_leave(&writer.holder), &late.holder);
    assert_null(order_leave(&late.holder));
}

static void who_gives_up_while_waiting_lets_the_next_one_pass(void **state)
{
    (void)state;
    struct order_queue queue = {0};
    struct single reader, writer, late;
    assert_true(single_enter(&reader, &queue, ORDER_ALL, false));
    assert_false(single_enter(&writer, &queue, ORDER_ALL, true));
    assert_false(single_enter(&late, &queue, ORDER_ALL, false));
    assert_ptr_equal(order_leave(&writer.holder), &late.holder);
    assert_null(order_leave(&writer.holder)); /* it has left already */
    assert_null(order_leave(&late.holder));
    assert_null(order_leave(&reader.holder));
}

static void a_holder_does_not_stand_in_its_own_way(void **state)
{
    (void)state;
    struct order_queue queue = {0};
    struct order_claim claims[2] = {{.queue = &queue, .shards = 1},
                                    {.queue = &queue, .shards = 3, .write = true}};
    struct order_holder copy = {.claims = claims, .count = 2};
    struct single before;
    assert_true(order_enter(&copy));
    assert_null(order_leave(&copy));
    assert_true(single_enter(&before, &queue, ORDER_ALL, true));
    assert_false(order_enter(&copy));
    assert_ptr_equal(order_leave(&before.holder), &copy);
    assert_null(order_leave(&copy));
}

/* ---------------------------------------------------------------- against a naive model */

/** The model: who stands where, in the order of entering. A holder is granted when nobody earlier
 * conflicts. */
struct model {
    struct order_queue queues[QUEUES];
    struct order_holder holders[HOLDERS];
    struct order_claim claims[HOLDERS][CLAIMS];
    uint64_t entered[HOLDERS]; /**< Number of the entry; 0: it is not there. */
    bool granted[HOLDERS];
    uint64_t entries;
};

static uint64_t random_state = 12345;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

static bool claims_conflict(const struct order_claim *a, const struct order_claim *b)
{
    return a->queue == b->queue && (a->shards & b->shards) && (a->write || b->write);
}

static bool holders_conflict(const struct model *model, int a, int b)
{
    for (uint32_t i = 0; i < model->holders[a].count; i++) {
        for (uint32_t j = 0; j < model->holders[b].count; j++) {
            if (claims_conflict(&model->claims[a][i], &model->claims[b][j])) {
                return true;
            }
        }
    }
    return false;
}

static bool model_grants(const struct model *model, int holder)
{
    for (int other = 0; other < HOLDERS; other++) {
        bool earlier = model->entered[other] && model->entered[other] < model->entered[holder];
        if (earlier && holders_conflict(model, other, holder)) {
            return false;
        }
    }
    return true;
}

/** Random claims, those of one queue side by side. */
static void model_choose_claims(struct model *model, int holder)
{
    uint32_t count = 0;
    for (int queue = 0; queue < QUEUES; queue++) {
        uint32_t here = random_below(4) == 0 ? 1 + random_below(2) : 0;
        for (; here > 0 && count < CLAIMS; here--) {
            uint64_t shards = random_below(3) == 0 ? ORDER_ALL : order_rank(random_below(3));
            model->claims[holder][count++] = (struct order_claim){
                .queue = &model->queues[queue], .shards = shards, .write = random_below(2) == 0};
        }
    }
    model->holders[holder] = (struct order_holder){.claims = model->claims[holder], .count = count};
}

static void model_enter(struct model *model, int holder)
{
    model_choose_claims(model, holder);
    model->entered[holder] = ++model->entries;
    model->granted[holder] = order_enter(&model->holders[holder]);
    assert_int_equal(model->granted[holder], model_grants(model, holder));
}

static void model_leave(struct model *model, int holder)
{
    struct order_holder *runnable = order_leave(&model->holders[holder]);
    model->entered[holder] = 0;
    for (; runnable; runnable = runnable->next) {
        int told = (int)(runnable - model->holders);
        assert_false(model->granted[told]); /* told once */
        assert_true(model->entered[told] != 0);
        model->granted[told] = true;
    }
    for (int i = 0; i < HOLDERS; i++) {
        if (model->entered[i]) {
            assert_int_equal(model->granted[i], model_grants(model, i));
        }
    }
}

static void random_holders_are_granted_as_in_a_naive_simulation(void **state)
{
    (void)state;
    struct model *model = calloc(1, sizeof(*model));
    assert_non_null(model);
    for (int step = 0; step < STEPS; step++) {
        int holder = (int)random_below(HOLDERS);
        if (model->entered[holder]) {
            model_leave(model, holder);
        } else {
            model_enter(model, holder);
        }
    }
    for (int i = 0; i < HOLDERS; i++) {
        if (model->entered[i]) {
            model_leave(model, i);
        }
    }
    for (int i = 0; i < QUEUES; i++) {
        assert_null(model->queues[i].first);
        assert_int_equal(model->queues[i].writers + model->queues[i].waiting, 0);
    }
    free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_conflict_when_they_share_a_shard_and_one_writes),
        cmocka_unit_test(a_reader_does_not_pass_a_writer_that_waits),
        cmocka_unit_test(who_gives_up_while_waiting_lets_the_next_one_pass),
        cmocka_unit_test(a_holder_does_not_stand_in_its_own_way),
        cmocka_unit_test(random_holders_are_granted_as_in_a_naive_simulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
