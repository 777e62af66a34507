#ifndef SYMTENSOR_GPU_KERNELS_MOVE_CUH
#define SYMTENSOR_GPU_KERNELS_MOVE_CUH

#include "gpu/kernels/piece.cuh"

/**
 * symtensor_move. The work is one line of tiles, movement after movement; block b takes tiles b,
 * b + gridDim.x, ..., so any number of blocks shares any list of movements evenly and neighbouring
 * blocks work on neighbouring memory.
 *
 * A thread reads an index of every input, then writes the same index of every output: in place
 * nothing is overwritten that is still to be read. Between the first load and the first use lie the
 * loads of several ranks or several vectors, so that enough of them are on their way.
 */

/* ------------------------------------------------------------------ reductions */

/** Accumulators of a vector. */
template <typename Fold> struct Sums {
    typename Fold::Accumulator lanes[vector_lanes<typename Fold::Lane>];
};

template <typename Fold>
INLINE void sums_fold(const Fold &fold, Sums<Fold> &sums, const Vector &vector, bool first)
{
#pragma unroll
    for (uint32_t i = 0; i < vector_lanes<typename Fold::Lane>; i++) {
        auto value = fold.load(vector_lane<typename Fold::Lane>(vector, i));
        sums.lanes[i] = first ? value : fold.fold(sums.lanes[i], value);
    }
}

template <typename Fold> INLINE Vector sums_finish(const Fold &fold, const Sums<Fold> &sums)
{
    Vector vector;
#pragma unroll
    for (uint32_t i = 0; i < vector_lanes<typename Fold::Lane>; i++) {
        vector_set_lane(vector, i, fold.finish(sums.lanes[i]));
    }
    return vector;
}

/** How much is on its way at once follows from what the accumulators leave of the registers. */
template <typename Fold>
constexpr uint32_t reduce_ranks = vector_lanes<typename Fold::Lane> > 8 ? 2 : 4;
constexpr uint32_t reduce_vectors = 1;

/** Fold the vectors of a batch, the loads of several ranks at a time. */
template <typename Fold, uint32_t count>
INLINE void reduce_batch(const Fold &fold, const Batch<count> &batch)
{
    constexpr uint32_t ranks = reduce_ranks<Fold>;
    Sums<Fold> sums[count] = {};
    uint32_t input_count = piece.input_count;
#pragma unroll 1
    for (uint32_t begin = 0; begin < input_count; begin += ranks) {
        Vector loaded[ranks][count];
#pragma unroll
        for (uint32_t i = 0; i < ranks; i++) {
            if (begin + i < input_count) {
                batch_load(loaded[i], batch, piece.inputs[begin + i]);
            } else {
                batch_clear(loaded[i]);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < ranks * count; i++) {
            if (begin + i / count < input_count) {
                sums_fold(fold, sums[i % count], loaded[i / count][i % count],
                          begin + i / count == 0);
            }
        }
    }
    Vector results[count];
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        results[i] = sums_finish(fold, sums[i]);
    }
    outputs_store(results, batch);
}

/** The tiles tile, tile + gridDim.x, ... of the piece. */
template <typename Fold> INLINE void reduce_tiles(uint32_t tile)
{
    const Fold fold(piece.op, piece.dtype, piece.world_size);
    constexpr uint32_t together = reduce_vectors;
#pragma unroll 1
    for (; tile < piece.tiles; tile += gridDim.x) {
#pragma unroll 1
        for (uint32_t step = 0; step < piece.steps; step += together) {
            Batch<together> batch = batch_begin<together>(tile, step);
            if (batch.valid[0]) {
                reduce_batch(fold, batch);
            }
        }
        reduce_elements(fold, piece_elements(tile));
    }
}

/* ------------------------------------------------------------------ copies */

INLINE void copy_tiles(uint32_t tile)
{
#pragma unroll 1
    for (; tile < piece.tiles; tile += gridDim.x) {
        Batch<tile_steps> batch = batch_begin<tile_steps>(tile, 0);
        if (batch.valid[0]) {
            Vector values[tile_steps];
            batch_load(values, batch, piece.inputs[0]);
            outputs_store(values, batch);
        }
        copy_elements(piece_elements(tile));
    }
}

INLINE void exchange_element(uint64_t index)
{
    uint64_t a = piece.inputs[0] + index * piece.size;
    uint64_t b = piece.outputs[0] + index * piece.size;
    uint64_t of_a = element_load(a, piece.size), of_b = element_load(b, piece.size);
    element_store(a, piece.size, of_b);
    element_store(b, piece.size, of_a);
}

INLINE void exchange_tiles(uint32_t tile)
{
    constexpr uint32_t together = 2;
#pragma unroll 1
    for (; tile < piece.tiles; tile += gridDim.x) {
#pragma unroll 1
        for (uint32_t step = 0; step < piece.steps; step += together) {
            Batch<together> batch = batch_begin<together>(tile, step);
            Vector of_a[together], of_b[together];
            batch_load(of_a, batch, piece.inputs[0]);
            batch_load(of_b, batch, piece.outputs[0]);
            batch_store(of_b, batch, piece.inputs[0]);
            batch_store(of_a, batch, piece.outputs[0]);
        }
        Elements elements = piece_elements(tile);
#pragma unroll 1
        for (; elements.index < elements.end; elements.index += elements.step) {
            exchange_element(elements.index);
        }
    }
}

/* ------------------------------------------------------------------ the kernel */

/** Run a block's tiles of the piece. */
INLINE void move_piece(uint32_t tile)
{
    uint32_t kind = piece.kind;
    bool runs = true;
    if (kind == GPU_MOVEMENT_COPY) {
        copy_tiles(tile);
    } else if (kind == GPU_MOVEMENT_EXCHANGE) {
        exchange_tiles(tile);
    } else {
        runs = kind == GPU_MOVEMENT_REDUCE && fold_choose(piece.op, piece.dtype, [&](auto choice) {
                   reduce_tiles<typename decltype(choice)::Fold>(tile);
               });
    }
    if (!runs) {
        machine_trap();
    }
}

INLINE void move_run(const gpu_move_params &move)
{
    launch_run(
        move, [](uint32_t, const Part &) {}, [](uint32_t tile) { move_piece(tile); });
}

#endif
