#include "gpu/kernels/movement.h"

#include <string.h>

#include "gpu/kernels/arithmetic.h"
#include "gpu/kernels/lines.h"

/** Traffic of a chunk: small enough that two cores share a launch evenly, large beside the
 * hand-over. */
#define MOVEMENT_CHUNK_BYTES (1u << 20)
/** Borders of chunks, in elements: a line of the smallest element. */
#define MOVEMENT_BORDER 64u
/** Blocks of an exchange: both sides and the block fit into the first-level cache. */
#define EXCHANGE_BLOCK_BYTES 2048u

/* ------------------------------------------------------------------ what a launch says */

static bool movement_rank_valid(uint32_t rank, uint32_t world_size, bool all_allowed)
{
    return rank < world_size || (all_allowed && rank == GPU_RANK_ALL);
}

static bool movement_valid(const struct gpu_move_params *move, const struct gpu_movement *movement)
{
    uint32_t world_size = move->world_size;
    bool source = movement_rank_valid(movement->source_rank, world_size, false);
    switch (movement->kind) {
    case GPU_MOVEMENT_COPY:
        return source && movement_rank_valid(movement->destination_rank, world_size, true);
    case GPU_MOVEMENT_REDUCE:
        return movement_rank_valid(movement->destination_rank, world_size, true) &&
               move->op < ST_OP_COUNT &&
               st_reduce_op_supports((enum st_reduce_op)move->op, (enum st_dtype)move->dtype);
    case GPU_MOVEMENT_EXCHANGE:
        return source && movement_rank_valid(movement->destination_rank, world_size, false);
    default:
        return false;
    }
}

static bool move_valid(const struct gpu_move_params *move)
{
    if (move->dtype >= ST_DTYPE_COUNT || move->world_size == 0 ||
        move->world_size > GPU_KERNEL_RANKS_MAX || move->part_index >= move->part_count ||
        move->movement_count > GPU_KERNEL_MOVEMENTS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < move->movement_count; i++) {
        if (!movement_valid(move, &move->movements[i])) {
            return false;
        }
    }
    return true;
}

static uint32_t move_element_bytes(const struct gpu_move_params *move)
{
    return st_dtype_info((enum st_dtype)move->dtype)->size_bytes;
}

/** Elements of this part of a movement. */
static uint64_t movement_part(const struct gpu_move_params *move,
                              const struct gpu_movement *movement, uint64_t *ret_first)
{
    uint64_t count = movement->count;
    if (count > UINT64_MAX - MOVEMENT_BORDER) {
        count = UINT64_MAX - MOVEMENT_BORDER; /* gpu_movement_part() rounds up */
    }
    uint64_t part_count;
    gpu_movement_part(count, move->part_index, move->part_count, ret_first, &part_count);
    return part_count;
}

/** Bytes read and written for each element of a movement. */
static uint64_t movement_weight(const struct gpu_movement_launch *launch,
                                const struct gpu_movement *movement)
{
    const struct gpu_move_params *move = launch->move;
    uint64_t arrays = movement->kind == GPU_MOVEMENT_REDUCE ? move->world_size : 1;
    if (movement->kind == GPU_MOVEMENT_EXCHANGE) {
        arrays = 4;
    } else if (movement->destination_rank != GPU_RANK_ALL) {
        arrays += 1;
    } else if (launch->multicast_output) {
        arrays += move->world_size;
    } else {
        for (uint32_t i = 0; i < move->world_size; i++) {
            arrays += move->outputs[i] != 0;
        }
    }
    return arrays * move_element_bytes(move);
}

uint64_t gpu_movement_traffic(const struct gpu_movement_launch *launch)
{
    const struct gpu_move_params *move = launch->move;
    uint64_t traffic = 0;
    if (!move_valid(move)) {
        return 0;
    }
    for (uint32_t i = 0; i < move->movement_count; i++) {
        uint64_t first;
        uint64_t count = movement_part(move, &move->movements[i], &first);
        uint64_t weight = movement_weight(launch, &move->movements[i]);
        traffic = saturating_add(traffic, saturating_multiply(count, weight));
    }
    return traffic;
}

uint64_t gpu_movement_chunks(const struct gpu_movement_launch *launch)
{
    uint64_t chunks = divide_up(gpu_movement_traffic(launch), MOVEMENT_CHUNK_BYTES);
    return chunks ? chunks : 1;
}

/* ------------------------------------------------------------------ operands */

/** What a launch touches of one address space: [begin, end), empty while begin is UINT64_MAX. */
struct operand_range {
    uint64_t begin, end;
};

static void operand_add(struct operand_range *range, uint64_t address, uint64_t offset_bytes,
                        uint64_t bytes)
{
    uint64_t begin = saturating_add(address, offset_bytes);
    uint64_t end = saturating_add(begin, bytes);
    begin = begin < end ? begin : end - 1; /* saturated: never empty */
    range->begin = begin < range->begin ? begin : range->begin;
    range->end = end > range->end ? end : range->end;
}

/** The ranges of one launch. */
struct operand_ranges {
    struct operand_range reads[GPU_KERNEL_RANKS_MAX], writes[GPU_KERNEL_RANKS_MAX];
    struct operand_range multicast_read, multicast_write;
};

static void operands_add_reads(struct operand_ranges *ranges,
                               const struct gpu_movement_launch *launch,
                               const struct gpu_movement *movement, uint64_t offset, uint64_t bytes)
{
    const struct gpu_move_params *move = launch->move;
    if (movement->kind == GPU_MOVEMENT_EXCHANGE) {
        operand_add(&ranges->writes[movement->source_rank], move->outputs[movement->source_rank],
                    offset, bytes);
        return;
    }
    if (movement->kind == GPU_MOVEMENT_COPY) {
        operand_add(&ranges->reads[movement->source_rank], move->inputs[movement->source_rank],
                    offset, bytes);
        return;
    }
    if (launch->multicast_input) {
        operand_add(&ranges->multicast_read, launch->multicast_input, offset, bytes);
        return;
    }
    for (uint32_t i = 0; i < move->world_size; i++) {
        operand_add(&ranges->reads[i], move->inputs[i], offset, bytes);
    }
}

static void operands_add_writes(struct operand_ranges *ranges,
                                const struct gpu_movement_launch *launch,
                                const struct gpu_movement *movement, uint64_t offset,
                                uint64_t bytes)
{
    const struct gpu_move_params *move = launch->move;
    bool all = movement->destination_rank == GPU_RANK_ALL;
    if (all && launch->multicast_output) {
        operand_add(&ranges->multicast_write, launch->multicast_output, offset, bytes);
        return;
    }
    for (uint32_t i = 0; i < move->world_size; i++) {
        if ((all || i == movement->destination_rank) && move->outputs[i]) {
            operand_add(&ranges->writes[i], move->outputs[i], offset, bytes);
        }
    }
}

static uint32_t operand_emit(const struct operand_range *range, bool write, bool multicast,
                             struct gpu_operand *ret)
{
    if (range->begin == UINT64_MAX) {
        return 0;
    }
    *ret = (struct gpu_operand){range->begin, range->end - range->begin, write, multicast};
    return 1;
}

uint32_t gpu_movement_operands(const struct gpu_movement_launch *launch, struct gpu_operand *ret)
{
    const struct gpu_move_params *move = launch->move;
    if (!move_valid(move)) {
        *ret = (struct gpu_operand){0, UINT64_MAX, true, false};
        return 1;
    }
    struct operand_ranges ranges;
    memset(&ranges, 0, sizeof(ranges));
    for (uint32_t i = 0; i < GPU_KERNEL_RANKS_MAX; i++) {
        ranges.reads[i].begin = ranges.writes[i].begin = UINT64_MAX;
    }
    ranges.multicast_read.begin = ranges.multicast_write.begin = UINT64_MAX;
    uint64_t element_bytes = move_element_bytes(move);
    for (uint32_t i = 0; i < move->movement_count; i++) {
        const struct gpu_movement *movement = &move->movements[i];
        uint64_t first;
        uint64_t bytes = saturating_multiply(movement_part(move, movement, &first), element_bytes);
        if (bytes == 0) {
            continue;
        }
        uint64_t source = saturating_add(movement->source_offset, first);
        uint64_t destination = saturating_add(movement->destination_offset, first);
        operands_add_reads(&ranges, launch, movement, saturating_multiply(source, element_bytes),
                           bytes);
        operands_add_writes(&ranges, launch, movement,
                            saturating_multiply(destination, element_bytes), bytes);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < move->world_size; i++) {
        const struct operand_range *read = &ranges.reads[i], *write = &ranges.writes[i];
        count += operand_emit(write, true, false, &ret[count]);
        if (read->begin < write->begin || read->end > write->end) {
            count += operand_emit(read, false, false, &ret[count]);
        }
    }
    count += operand_emit(&ranges.multicast_read, false, true, &ret[count]);
    count += operand_emit(&ranges.multicast_write, true, true, &ret[count]);
    return count;
}

/* ------------------------------------------------------------------ running */

/** Elements [first, first + count) of one movement. */
struct movement_piece {
    const struct gpu_movement_launch *launch;
    const struct gpu_movement *movement;
    uint64_t first, count;
    uint32_t element_bytes;
};

static char *movement_address(uint64_t address, uint64_t offset, uint32_t element_bytes)
{
    return (char *)(uintptr_t)(address + offset * element_bytes);
}

/** Members of @p bytes at a multicast address; false when the driver knows none. */
static bool movement_resolve(const struct movement_piece *piece, uint64_t address,
                             struct gpu_twin_members *ret_members)
{
    const struct gpu_twin_services *services = piece->launch->services;
    return services &&
           services->resolve(services->context, address, piece->count * piece->element_bytes,
                             ret_members) &&
           ret_members->count >= 1 && ret_members->count <= GPU_KERNEL_RANKS_MAX;
}

static bool movement_sources(const struct movement_piece *piece, struct gpu_lines *ret_job)
{
    const struct gpu_move_params *move = piece->launch->move;
    const struct gpu_movement *movement = piece->movement;
    uint64_t offset = movement->source_offset + piece->first;
    if (movement->kind == GPU_MOVEMENT_COPY) {
        ret_job->source_count = 1;
        ret_job->sources[0] =
            movement_address(move->inputs[movement->source_rank], offset, piece->element_bytes);
        return true;
    }
    if (!piece->launch->multicast_input) {
        ret_job->source_count = move->world_size;
        for (uint32_t i = 0; i < move->world_size; i++) {
            ret_job->sources[i] = movement_address(move->inputs[i], offset, piece->element_bytes);
        }
        return true;
    }
    struct gpu_twin_members members;
    uint64_t address = piece->launch->multicast_input + offset * piece->element_bytes;
    if (!movement_resolve(piece, address, &members)) {
        return false;
    }
    /* A switch keeps no order; the last member first shows who relies on one. */
    ret_job->source_count = members.count;
    for (uint32_t i = 0; i < members.count; i++) {
        ret_job->sources[i] = members.addresses[members.count - 1 - i];
    }
    return true;
}

static bool movement_outputs(const struct movement_piece *piece, struct gpu_lines *ret_job)
{
    const struct gpu_move_params *move = piece->launch->move;
    const struct gpu_movement *movement = piece->movement;
    uint64_t offset = movement->destination_offset + piece->first;
    bool all = movement->destination_rank == GPU_RANK_ALL;
    ret_job->output_count = 0;
    if (all && piece->launch->multicast_output) {
        struct gpu_twin_members members;
        uint64_t address = piece->launch->multicast_output + offset * piece->element_bytes;
        if (!movement_resolve(piece, address, &members)) {
            return false;
        }
        ret_job->output_count = members.count;
        for (uint32_t i = 0; i < members.count; i++) {
            ret_job->outputs[i] = members.addresses[i];
        }
        return true;
    }
    for (uint32_t i = 0; i < move->world_size; i++) {
        if ((!all && i != movement->destination_rank) || !move->outputs[i]) {
            continue;
        }
        ret_job->outputs[ret_job->output_count++] =
            movement_address(move->outputs[i], offset, piece->element_bytes);
    }
    return true;
}

/** Leave out the outputs that are the source itself. */
static void movement_drop_source(struct gpu_lines *job)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < job->output_count; i++) {
        if (job->outputs[i] != job->sources[0]) {
            job->outputs[kept++] = job->outputs[i];
        }
    }
    job->output_count = kept;
}

/**
 * Whether an output is one of the sources. Its lines are then in the cache: storing them there
 * costs no further read, while bypassing the cache would evict each first (measured: half the
 * speed).
 */
static bool movement_in_place(const struct gpu_lines *job)
{
    for (uint32_t i = 0; i < job->output_count; i++) {
        for (uint32_t k = 0; k < job->source_count; k++) {
            if (job->outputs[i] == job->sources[k]) {
                return true;
            }
        }
    }
    return false;
}

static void movement_run_lines(const struct movement_piece *piece)
{
    const struct gpu_move_params *move = piece->launch->move;
    const struct gpu_line_variant *variant = gpu_lines_variant();
    struct gpu_lines job;
    if (!movement_sources(piece, &job) || !movement_outputs(piece, &job)) {
        return; /* the driver refused the operands already */
    }
    job.bytes = piece->count * piece->element_bytes;
    job.stream = move->streaming != 0;
    if (piece->movement->kind == GPU_MOVEMENT_COPY) {
        movement_drop_source(&job);
        gpu_lines_run(variant->copy, &job, piece->element_bytes);
        return;
    }
    job.stream = job.stream && !movement_in_place(&job);
    gpu_lines_run(variant->reduce[move->dtype][move->op], &job, piece->element_bytes);
}

static void movement_run_exchange(const struct movement_piece *piece)
{
    const struct gpu_move_params *move = piece->launch->move;
    const struct gpu_movement *movement = piece->movement;
    char *a = movement_address(move->outputs[movement->source_rank],
                               movement->source_offset + piece->first, piece->element_bytes);
    char *b = movement_address(move->outputs[movement->destination_rank],
                               movement->destination_offset + piece->first, piece->element_bytes);
    uint64_t bytes = piece->count * piece->element_bytes;
    char block[EXCHANGE_BLOCK_BYTES];
    for (uint64_t at = 0; at < bytes; at += EXCHANGE_BLOCK_BYTES) {
        size_t size = bytes - at < EXCHANGE_BLOCK_BYTES ? bytes - at : EXCHANGE_BLOCK_BYTES;
        memcpy(block, a + at, size);
        memcpy(a + at, b + at, size);
        memcpy(b + at, block, size);
    }
}

/** The element at which @p position of the launch's traffic cuts a movement that begins at @p
 * start. */
static uint64_t movement_border(uint64_t position, uint64_t start, uint64_t weight, uint64_t count)
{
    if (position <= start) {
        return 0;
    }
    uint64_t element = (position - start) / weight;
    return element < count ? element - element % MOVEMENT_BORDER : count;
}

void gpu_movement_run(const struct gpu_movement_launch *launch, uint64_t chunk)
{
    const struct gpu_move_params *move = launch->move;
    if (!move_valid(move)) {
        return;
    }
    uint64_t chunk_bytes = divide_up(gpu_movement_traffic(launch), gpu_movement_chunks(launch));
    uint64_t begin = saturating_multiply(chunk, chunk_bytes);
    uint64_t end = saturating_add(begin, chunk_bytes);
    uint64_t start = 0;
    for (uint32_t i = 0; i < move->movement_count && start < end; i++) {
        struct movement_piece piece = {launch, &move->movements[i], 0, 0, move_element_bytes(move)};
        uint64_t part_first;
        uint64_t part_count = movement_part(move, piece.movement, &part_first);
        uint64_t weight = movement_weight(launch, piece.movement);
        uint64_t first = movement_border(begin, start, weight, part_count);
        piece.count = movement_border(end, start, weight, part_count) - first;
        piece.first = part_first + first;
        if (piece.count && piece.movement->kind == GPU_MOVEMENT_EXCHANGE) {
            movement_run_exchange(&piece);
        } else if (piece.count) {
            movement_run_lines(&piece);
        }
        start = saturating_add(start, saturating_multiply(part_count, weight));
    }
}
