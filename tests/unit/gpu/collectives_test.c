#include "tests/support/leak_check.h"

#include <string.h>

#include "base/limits.h"
#include "tests/contract/gpu/collective_meaning.h"

/**
 * The lists of movements, run on a model: an element is a number, a reduction is a fold whose
 * result tells the order of its operands.
 */

#define MODEL_RANKS 8
#define MODEL_ELEMENTS 64
#define UNTOUCHED UINT64_MAX

struct model {
    uint64_t inputs[MODEL_RANKS][MODEL_ELEMENTS];
    uint64_t outputs[MODEL_RANKS][MODEL_ELEMENTS];
    unsigned writes[MODEL_RANKS][MODEL_ELEMENTS];
};

static uint64_t value_of(uint32_t rank, uint64_t element)
{
    return 1000 * (rank + 1) + element;
}

/** All ranks, left to right. */
static uint64_t fold(uint32_t world_size, uint64_t element)
{
    uint64_t folded = 7;
    for (uint32_t rank = 0; rank < world_size; rank++) {
        folded = folded * 1000003 + value_of(rank, element);
    }
    return folded;
}

/* ---------------------------------------------------------------- the model */

static void model_init(struct model *model, const struct gpu_collective_shape *shape)
{
    memset(model, 0, sizeof(*model));
    for (uint32_t rank = 0; rank < shape->world_size; rank++) {
        for (uint64_t i = 0; i < MODEL_ELEMENTS; i++) {
            model->inputs[rank][i] = value_of(rank, i);
            model->outputs[rank][i] = shape->in_place ? value_of(rank, i) : UNTOUCHED;
        }
    }
}

static uint64_t model_read(const struct model *model, const struct gpu_collective_shape *shape,
                           uint32_t rank, uint64_t element)
{
    assert_true(element < MODEL_ELEMENTS);
    return shape->in_place ? model->outputs[rank][element] : model->inputs[rank][element];
}

static void model_write(struct model *model, uint32_t rank, uint64_t element, uint64_t value)
{
    assert_true(element < MODEL_ELEMENTS);
    model->outputs[rank][element] = value;
    model->writes[rank][element]++;
}

static uint64_t model_source(const struct model *model, const struct gpu_collective_shape *shape,
                             const struct gpu_movement *movement, uint64_t i)
{
    uint64_t at = movement->source_offset + i;
    if (movement->kind != GPU_MOVEMENT_REDUCE) {
        assert_true(movement->source_rank < shape->world_size);
        return model_read(model, shape, movement->source_rank, at);
    }
    assert_int_equal(movement->source_rank, GPU_RANK_ALL);
    uint64_t folded = 7;
    for (uint32_t rank = 0; rank < shape->world_size; rank++) {
        folded = folded * 1000003 + model_read(model, shape, rank, at);
    }
    return folded;
}

static void model_element(struct model *model, const struct gpu_collective_shape *shape,
                          const struct gpu_movement *movement, uint64_t i)
{
    uint64_t value = model_source(model, shape, movement, i);
    uint64_t at = movement->destination_offset + i;
    uint32_t first = movement->destination_rank == GPU_RANK_ALL ? 0 : movement->destination_rank;
    uint32_t end = movement->destination_rank == GPU_RANK_ALL ? shape->world_size : first + 1;
    assert_true(end <= shape->world_size);
    if (movement->kind == GPU_MOVEMENT_EXCHANGE) {
        model_write(model, movement->source_rank, movement->source_offset + i,
                    model_read(model, shape, first, at));
    }
    for (uint32_t rank = first; rank < end; rank++) {
        bool itself = movement->kind == GPU_MOVEMENT_COPY && shape->in_place &&
                      rank == movement->source_rank &&
                      movement->source_offset == movement->destination_offset;
        if (!itself) {
            model_write(model, rank, at, value);
        }
    }
}

static void model_run(struct model *model, const struct gpu_collective *collective,
                      const struct gpu_collective_shape *shape, uint32_t batch)
{
    struct gpu_movement movements[GPU_KERNEL_MOVEMENTS_MAX];
    uint32_t first = 0, count;
    while ((count = collective->movements(shape, first, batch, movements)) > 0) {
        assert_true(count <= batch);
        for (uint32_t m = 0; m < count; m++) {
            for (uint64_t i = 0; i < movements[m].count; i++) {
                model_element(model, shape, &movements[m], i);
            }
        }
        first += count;
    }
}

/** What an element of the output must be. */
static uint64_t wanted(const struct meaning *meaning, const struct gpu_collective_shape *shape,
                       uint32_t rank, uint64_t element)
{
    uint64_t before = shape->in_place ? value_of(rank, element) : UNTOUCHED;
    if (element >= meaning_output_count(meaning, shape)) {
        return before;
    }
    struct meaning_origin origin = meaning->origin(shape, rank, element);
    return origin.how == MEANING_UNTOUCHED ? before
           : origin.how == MEANING_COPIED  ? value_of(origin.rank, origin.element)
                                           : fold(shape->world_size, origin.element);
}

static void check(const struct meaning *meaning, const struct gpu_collective *collective,
                  const struct gpu_collective_shape *shape, uint32_t batch)
{
    static struct model model;
    model_init(&model, shape);
    model_run(&model, collective, shape, batch);
    for (uint32_t rank = 0; rank < shape->world_size; rank++) {
        for (uint64_t i = 0; i < MODEL_ELEMENTS; i++) {
            assert_int_equal(model.outputs[rank][i], wanted(meaning, shape, rank, i));
            assert_true(model.writes[rank][i] <= 1);
        }
    }
}

/* ---------------------------------------------------------------- tests */

static void the_movements_of_every_collective_do_what_it_means(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 3, 7};
    static const uint32_t batches[] = {1, 5, GPU_KERNEL_MOVEMENTS_MAX};
    for (size_t row = 0; row < MEANINGS_COUNT; row++) {
        const struct gpu_collective *collective = gpu_collective_find(meanings[row].name);
        assert_non_null(collective);
        for (uint32_t w = 1; w <= MODEL_RANKS; w++) {
            for (uint32_t i = 0; i < 4 * 3 * 2 * (collective->rooted ? w : 1); i++) {
                const struct gpu_collective_shape shape = {
                    .world_size = w,
                    .root = i / 24,
                    .slice_count = counts[i % 4],
                    .in_place = i / 12 % 2,
                };
                check(&meanings[row], collective, &shape, batches[i / 4 % 3]);
            }
        }
    }
}

static void every_collective_of_the_table_has_a_meaning_here(void **state)
{
    (void)state;
    size_t count = 0;
    while (gpu_collectives[count]) {
        assert_ptr_equal(gpu_collective_find(gpu_collectives[count]->name), gpu_collectives[count]);
        assert_true(strlen(gpu_collectives[count]->summary) > 0);
        assert_non_null(meaning_find(gpu_collectives[count]->name));
        count++;
    }
    assert_int_equal(count, MEANINGS_COUNT);
    assert_null(gpu_collective_find("all_shuffle"));
}

static void movements_past_the_end_are_none(void **state)
{
    (void)state;
    struct gpu_movement movements[GPU_KERNEL_MOVEMENTS_MAX];
    for (size_t i = 0; gpu_collectives[i]; i++) {
        const struct gpu_collective_shape shape = {.world_size = ST_NODE_RANKS_MAX,
                                                   .slice_count = 1};
        assert_int_equal(gpu_collectives[i]->movements(&shape, 4096, 64, movements), 0);
        assert_int_equal(gpu_collectives[i]->movements(&shape, UINT32_MAX, 64, movements), 0);
        assert_int_equal(gpu_collectives[i]->movements(&shape, 0, 0, movements), 0);
    }
}

static void bus_factors_are_those_of_nccl_tests(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double of_4; /**< For 4 ranks. */
    } factors[] = {
        {"all_reduce", 1.5}, {"reduce", 1.0},          {"broadcast", 1.0}, {"all_gather", 0.75},
        {"gather", 0.75},    {"reduce_scatter", 0.75}, {"scatter", 0.75},  {"all_to_all", 0.75},
    };
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        double factor = gpu_collective_find(factors[i].name)->bus_factor(4);
        assert_true(factor > factors[i].of_4 - 1e-9 && factor < factors[i].of_4 + 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_movements_of_every_collective_do_what_it_means),
        cmocka_unit_test(every_collective_of_the_table_has_a_meaning_here),
        cmocka_unit_test(movements_past_the_end_are_none),
        cmocka_unit_test(bus_factors_are_those_of_nccl_tests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
