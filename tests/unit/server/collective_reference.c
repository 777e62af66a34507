#include "tests/unit/server/collective_reference.h"

#include <math.h>
#include <string.h>

/** Where element @p index of rank's output comes from. */
struct reference_source {
    bool written;
    uint32_t rank; /**< Not for reductions, which read every rank. */
    uint64_t index;
};

/** One row a verb; in place means offsets on the larger side. */
struct reference_verb {
    const char *name;
    bool reduces, input_large, output_large;
    struct reference_source (*source)(const struct reference_run *run, uint32_t rank,
                                      uint64_t index);
};

static struct reference_source from_root(const struct reference_run *run, uint32_t rank,
                                         uint64_t index)
{
    (void)rank;
    return (struct reference_source){true, run->root, index};
}

static struct reference_source all(const struct reference_run *run, uint32_t rank, uint64_t index)
{
    (void)run;
    (void)rank;
    return (struct reference_source){true, 0, index};
}

static struct reference_source all_at_root(const struct reference_run *run, uint32_t rank,
                                           uint64_t index)
{
    return (struct reference_source){rank == run->root, 0, index};
}

static struct reference_source gathered(const struct reference_run *run, uint32_t rank,
                                        uint64_t index)
{
    (void)rank;
    uint64_t slice = index / run->slice_count;
    return (struct reference_source){true, (uint32_t)slice,
                                     run->in_place ? index : index % run->slice_count};
}

static struct reference_source gathered_at_root(const struct reference_run *run, uint32_t rank,
                                                uint64_t index)
{
    struct reference_source source = gathered(run, rank, index);
    source.written = rank == run->root;
    return source;
}

static struct reference_source scattered(const struct reference_run *run, uint32_t rank,
                                         uint64_t index)
{
    if (!run->in_place) {
        return (struct reference_source){true, run->root, rank * run->slice_count + index};
    }
    return (struct reference_source){index / run->slice_count == rank, run->root, index};
}

static struct reference_source exchanged(const struct reference_run *run, uint32_t rank,
                                         uint64_t index)
{
    uint64_t slice = index / run->slice_count;
    return (struct reference_source){true, (uint32_t)slice,
                                     rank * run->slice_count + index % run->slice_count};
}

static const struct reference_verb verbs[] = {
    {"broadcast", false, false, false, from_root},
    {"reduce", true, false, false, all_at_root},
    {"all_reduce", true, false, false, all},
    {"all_gather", false, false, true, gathered},
    {"gather", false, false, true, gathered_at_root},
    {"reduce_scatter", true, true, false, scattered},
    {"scatter", false, true, false, scattered},
    {"all_to_all", false, true, true, exchanged},
};

static const struct reference_verb *reference_verb(const struct reference_run *run)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, run->verb) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

uint64_t reference_input_count(const struct reference_run *run)
{
    const struct reference_verb *verb = reference_verb(run);
    bool large = verb->input_large || (run->in_place && verb->output_large);
    return large ? run->slice_count * run->world_size : run->slice_count;
}

uint64_t reference_output_count(const struct reference_run *run)
{
    const struct reference_verb *verb = reference_verb(run);
    bool large = verb->output_large || (run->in_place && verb->input_large);
    return large ? run->slice_count * run->world_size : run->slice_count;
}

bool reference_reduces(const struct reference_run *run)
{
    return reference_verb(run)->reduces;
}

static union st_scalar load(enum st_dtype dtype, const unsigned char *shard, uint64_t index)
{
    union st_scalar scalar = {0};
    uint32_t size = st_dtype_info(dtype)->size_bytes;
    memcpy(scalar.bytes, shard + index * size, size);
    return scalar;
}

static void store(enum st_dtype dtype, unsigned char *shard, uint64_t index, union st_scalar scalar)
{
    uint32_t size = st_dtype_info(dtype)->size_bytes;
    memcpy(shard + index * size, scalar.bytes, size);
}

/** A sum or product in the dtype's accumulator, which is float or double. */
static double fold_double(enum st_dtype dtype, enum st_reduce_op op, double a, double b)
{
    if (op == ST_OP_MIN || op == ST_OP_MAX) {
        if (isnan(a) || isnan(b)) {
            return NAN;
        }
        bool a_is_less = a < b || (a == b && signbit(a) && !signbit(b));
        return a_is_less == (op == ST_OP_MIN) ? a : b;
    }
    if (dtype == ST_DTYPE_FLOAT64) {
        return op == ST_OP_PROD ? a * b : a + b;
    }
    volatile float rounded = op == ST_OP_PROD ? (float)a * (float)b : (float)a + (float)b;
    return rounded;
}

/** Rounded once; what overflows becomes infinite, or NaN where the dtype has no infinity. */
static union st_scalar round_double(enum st_dtype dtype, double value)
{
    union st_scalar scalar = {0};
    if (!st_dtype_from_double(dtype, value, &scalar) &&
        !st_dtype_from_double(dtype, value < 0 ? -INFINITY : INFINITY, &scalar)) {
        st_dtype_from_double(dtype, NAN, &scalar);
    }
    return scalar;
}

static union st_scalar reduce_floats(const struct reference_run *run,
                                     const unsigned char *const *inputs, uint64_t index)
{
    double folded = st_dtype_to_double(run->dtype, load(run->dtype, inputs[0], index));
    for (uint32_t rank = 1; rank < run->world_size; rank++) {
        double next = st_dtype_to_double(run->dtype, load(run->dtype, inputs[rank], index));
        folded = fold_double(run->dtype, run->op, folded, next);
    }
    if (run->op == ST_OP_AVG) {
        volatile float narrow = (float)folded / (float)run->world_size;
        folded = run->dtype == ST_DTYPE_FLOAT64 ? folded / run->world_size : (double)narrow;
    }
    return round_double(run->dtype, folded);
}

static uint64_t fold_bits(bool is_signed, enum st_reduce_op op, uint64_t a, uint64_t b)
{
    bool a_is_less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case ST_OP_SUM:
    case ST_OP_AVG:
        return a + b;
    case ST_OP_PROD:
        return a * b;
    case ST_OP_MIN:
        return a_is_less ? a : b;
    case ST_OP_MAX:
        return a_is_less ? b : a;
    case ST_OP_BAND:
    case ST_OP_LAND:
        return a & b;
    case ST_OP_BXOR:
        return a ^ b;
    default:
        return a | b;
    }
}

static union st_scalar reduce_integers(const struct reference_run *run,
                                       const unsigned char *const *inputs, uint64_t index)
{
    enum st_dtype_kind kind = st_dtype_info(run->dtype)->kind;
    uint64_t folded = 0;
    for (uint32_t rank = 0; rank < run->world_size; rank++) {
        union st_scalar scalar = load(run->dtype, inputs[rank], index);
        uint64_t next = kind == ST_KIND_BOOL ? scalar.bits != 0
                                             : (uint64_t)st_dtype_to_int64(run->dtype, scalar);
        folded = rank == 0 ? next : fold_bits(kind == ST_KIND_SIGNED, run->op, folded, next);
    }
    if (run->op == ST_OP_AVG) {
        folded = kind == ST_KIND_SIGNED ? (uint64_t)((int64_t)folded / (int64_t)run->world_size)
                                        : folded / run->world_size;
    }
    return (union st_scalar){.bits = folded};
}

void reference_output(const struct reference_run *run, uint32_t rank,
                      const unsigned char *const *inputs, unsigned char *output)
{
    const struct reference_verb *verb = reference_verb(run);
    uint64_t count = reference_output_count(run);
    for (uint64_t index = 0; index < count; index++) {
        struct reference_source source = verb->source(run, rank, index);
        if (!source.written) {
            continue;
        }
        union st_scalar scalar = {0};
        if (!verb->reduces) {
            scalar = load(run->dtype, inputs[source.rank], source.index);
        } else if (st_dtype_info(run->dtype)->kind == ST_KIND_FLOAT) {
            scalar = reduce_floats(run, inputs, source.index);
        } else {
            scalar = reduce_integers(run, inputs, source.index);
        }
        store(run->dtype, output, index, scalar);
    }
}

bool reference_equal(enum st_dtype dtype, const unsigned char *a, const unsigned char *b)
{
    const struct st_dtype_info *info = st_dtype_info(dtype);
    if (memcmp(a, b, info->size_bytes) == 0) {
        return true;
    }
    return info->kind == ST_KIND_FLOAT && isnan(st_dtype_to_double(dtype, load(dtype, a, 0))) &&
           isnan(st_dtype_to_double(dtype, load(dtype, b, 0)));
}

/** splitmix64, Steele, Lea and Flood 2014. */
static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

union st_scalar reference_value(enum st_dtype dtype, uint64_t seed, uint32_t rank, uint64_t index)
{
    uint64_t random = mix(mix(seed * 1000003 + rank) + index);
    union st_scalar scalar = {.bits = random};
    const struct st_dtype_info *info = st_dtype_info(dtype);
    bool any_bits = random >> 60 < 3; /* NaNs, infinities, subnormals, the extremes. */
    if (info->kind == ST_KIND_FLOAT && !any_bits) {
        double value = ((double)(int64_t)(random << 8) / 9.2e18) * 4.0;
        st_dtype_from_double(dtype, value, &scalar);
    } else if (info->kind == ST_KIND_BOOL && !any_bits) {
        scalar.bits = random >> 63;
    }
    return scalar;
}
