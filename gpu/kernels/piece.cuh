#ifndef SYMTENSOR_GPU_KERNELS_PIECE_CUH
#define SYMTENSOR_GPU_KERNELS_PIECE_CUH

#include "gpu/kernels/fold.cuh"
#include "gpu/kernels/image.h"
#include "gpu/kernels/params.h"

/**
 * What symtensor_move and symtensor_multicast share: how a launch is cut into tiles, and what a
 * block keeps of the movement that it works on.
 *
 * The parameters stay in constant memory: whatever takes them by reference is inlined, so that no
 * thread has a copy. What a movement needs of them goes to shared memory rather than into
 * registers, which are for the data.
 */

#define INLINE __device__ static __forceinline__

constexpr uint32_t threads = GPU_KERNEL_THREADS;
/**
 * A tile is what a block does at once, in one movement; it has a vector for each thread and step. A
 * launch with few of them takes fine ones, so that more blocks share it.
 */
constexpr uint32_t tile_steps = GPU_KERNEL_FINE_PARTS;
constexpr uint32_t step_bytes = threads * sizeof(Vector);

INLINE uint32_t steps_of(const gpu_move_params &move)
{
    return move.fine ? 1 : tile_steps;
}

/** Where the vectors of a range of elements begin and end. */
struct Cut {
    uint64_t vectors; /**< Whole 16 bytes behind the head. */
    uint32_t head;    /**< Elements before all addresses are on a 16-byte border. */
    bool aligned;     /**< They reach one together; if not, all goes by elements. */
};

/** What a block works on: this launch's part of one movement. Written by piece_share(). */
struct Piece {
    uint64_t inputs[GPU_KERNEL_RANKS_MAX];  /**< [input_count] addresses of the first element. */
    uint64_t outputs[GPU_KERNEL_RANKS_MAX]; /**< [output_count]; 0: not written. */
    uint64_t count;                         /**< Elements. */
    Cut cut;
    uint32_t at;          /**< The block's first tile, counted over the launch. */
    uint32_t tile, tiles; /**< The block's first one, and how many there are. */
    uint32_t input_count, output_count;
    uint32_t size;  /**< Bytes of an element. */
    uint32_t steps; /**< Of a tile. */
    uint32_t kind;
    uint32_t world_size, op, dtype; /**< For a reduction. */
    bool streaming;
};

__shared__ Piece piece;

/** The part of one movement that is this launch's, before anything of it is shared. */
struct Part {
    uint64_t first, count;
    uint32_t tile, tiles;
};

constexpr uint64_t tiles_max = INT32_MAX; /* 64 TiB: no device maps as much */

INLINE Part part_begin(const gpu_move_params &move, uint32_t index)
{
    Part part = {0, move.movements[index].count, 0, 0};
    if (move.part_count != 1) { /* spares the divisions */
        gpu_movement_part(part.count, move.part_index, move.part_count, &part.first, &part.count);
    }
    uint64_t bytes = part.count * element_size(move.dtype);
    /* Divisors that are known when compiled. */
    constexpr uint32_t tile_bytes = tile_steps * step_bytes;
    uint64_t tiles = move.fine ? (bytes + step_bytes - 1) / step_bytes
                               : (bytes + tile_bytes - 1) / tile_bytes;
    if (tiles > tiles_max) {
        machine_trap();
    }
    part.tiles = static_cast<uint32_t>(tiles);
    return part;
}

INLINE uint32_t part_tiles(const gpu_move_params &move, uint32_t index)
{
    return index < move.movement_count ? part_begin(move, index).tiles : 0;
}

/** Where a tile of the launch lies. */
struct Place {
    uint32_t index; /**< Of the movement; GPU_KERNEL_MOVEMENTS_MAX: behind the last tile. */
    uint32_t tile;  /**< Of the movement. */
};

/** Sum of a value over the lanes of the warp up to this one. */
INLINE uint32_t warp_sum(uint32_t value)
{
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t below = machine_from_below(value, distance);
        value += threadIdx.x % 32 >= distance ? below : 0;
    }
    return value;
}

/**
 * The place of a tile. Each warp finds it by itself, all movements at once: block after block would
 * otherwise count its way through the list.
 */
INLINE Place place_find(const gpu_move_params &move, uint32_t tile)
{
    if (move.movement_count == 1) {
        return Place{0, tile}; /* whether there is such a tile is looked at anyway */
    }
    uint32_t before = 0; /* tiles of the movements that are done */
#pragma unroll 1
    for (uint32_t first = 0; first < move.movement_count; first += 32) {
        uint32_t tiles = part_tiles(move, first + threadIdx.x % 32);
        uint32_t end = before + warp_sum(tiles);
        uint32_t lanes = machine_ballot(end > tile);
        if (lanes) {
            uint32_t lane = static_cast<uint32_t>(__ffs(static_cast<int>(lanes))) - 1;
            return Place{first + lane, tile - machine_from_lane(end - tiles, lane)};
        }
        before = machine_from_lane(end, 31);
    }
    return Place{GPU_KERNEL_MOVEMENTS_MAX, 0};
}

/** Ranks [first, first + count). */
struct Ranks {
    uint32_t first, count;
};

INLINE Ranks ranks_of(uint32_t rank, uint32_t world_size)
{
    if (rank != GPU_RANK_ALL && rank >= world_size) {
        machine_trap();
    }
    return rank == GPU_RANK_ALL ? Ranks{0, world_size} : Ranks{rank, 1};
}

/** Cut @p count elements into head, vectors and tail. @param differ bits of addresses that differ.
 */
INLINE Cut cut_elements(uint64_t count, uint32_t size, uint64_t address, uint64_t differ)
{
    Cut cut;
    uint32_t head = (0 - static_cast<uint32_t>(address)) % sizeof(Vector) / size;
    cut.aligned = differ % sizeof(Vector) == 0;
    cut.head = head < count ? head : static_cast<uint32_t>(count);
    cut.vectors = (count - cut.head) * size / sizeof(Vector);
    return cut;
}

/** The cut where all addresses of the piece reach a border together. */
INLINE Cut piece_cut()
{
    uint64_t address = piece.inputs[0], differ = 0;
#pragma unroll 1
    for (uint32_t i = 1; i < piece.input_count; i++) {
        differ |= piece.inputs[i] ^ address;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < piece.output_count; i++) {
        differ |= piece.outputs[i] ? piece.outputs[i] ^ address : 0;
    }
    return cut_elements(piece.count, piece.size, address, differ);
}

/**
 * Set the piece to a part of a movement; every thread of the block comes here. An exchange has its
 * source among the outputs; a copy leaves out the output that is its source.
 */
INLINE void piece_share(const gpu_move_params &move, uint32_t index, const Part &part, uint32_t at)
{
    const gpu_movement &movement = move.movements[index];
    uint32_t size = element_size(move.dtype);
    uint64_t source = (movement.source_offset + part.first) * size;
    uint64_t destination = (movement.destination_offset + part.first) * size;
    Ranks inputs = ranks_of(movement.source_rank, move.world_size);
    Ranks outputs = ranks_of(movement.destination_rank, move.world_size);
    bool exchange = movement.kind == GPU_MOVEMENT_EXCHANGE;
    bool copy = movement.kind == GPU_MOVEMENT_COPY;
    __syncthreads(); /* nobody is at the last one any more */
    for (uint32_t i = threadIdx.x; i < GPU_KERNEL_RANKS_MAX; i += threads) {
        if (i < inputs.count) {
            uint32_t rank = inputs.first + i;
            piece.inputs[i] = (exchange ? move.outputs[rank] : move.inputs[rank]) + source;
        }
        if (i < outputs.count) {
            uint64_t address = move.outputs[outputs.first + i];
            bool written =
                address && !(copy && address + destination == move.inputs[inputs.first] + source);
            piece.outputs[i] = written ? address + destination : 0;
        }
    }
    if (threadIdx.x == 0) {
        piece.count = part.count;
        piece.at = at;
        piece.tile = part.tile;
        piece.tiles = part.tiles;
        piece.input_count = inputs.count;
        piece.output_count = outputs.count;
        piece.size = size;
        piece.steps = steps_of(move);
        piece.kind = movement.kind;
        piece.world_size = move.world_size;
        piece.op = move.op;
        piece.dtype = move.dtype;
        piece.streaming = move.streaming != 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        piece.cut = piece_cut();
    }
    __syncthreads();
}

/** Whether a launch can be run at all; where not, it ends in an error. */
INLINE void launch_check(const gpu_move_params &move)
{
    if (move.dtype >= ST_DTYPE_COUNT || move.world_size > GPU_KERNEL_RANKS_MAX ||
        move.movement_count > GPU_KERNEL_MOVEMENTS_MAX || move.part_count == 0) {
        machine_trap();
    }
}

/**
 * Run the tiles of this block, movement after movement.
 * @param share called behind piece_share(). @param run called with the first tile.
 */
template <typename Share, typename Run>
INLINE void launch_run(const gpu_move_params &move, const Share &share, const Run &run)
{
    uint32_t at = blockIdx.x; /* counted from the first tile of the launch */
    launch_check(move);
#pragma unroll 1
    for (;;) {
        Place place = place_find(move, at);
        if (place.index == GPU_KERNEL_MOVEMENTS_MAX) {
            return;
        }
        Part part = part_begin(move, place.index);
        if (place.tile >= part.tiles) {
            return;
        }
        part.tile = place.tile;
        piece_share(move, place.index, part, at);
        share(place.index, part);
        run(part.tile);
        /* From shared memory: not kept in registers over the movement. */
        at = piece.at + (piece.tiles - piece.tile + gridDim.x - 1) / gridDim.x * gridDim.x;
    }
}

/* ------------------------------------------------------------------ vectors */

/** The vectors that a thread works on at once: of a tile, from a step on. */
template <uint32_t count> struct Batch {
    uint64_t at;       /**< Bytes from the first element to the first vector. */
    bool valid[count]; /**< The next vectors follow at distances of one for each thread. */
};

constexpr uint64_t batch_distance = threads * sizeof(Vector);

template <uint32_t count> INLINE Batch<count> batch_begin(uint32_t tile, uint32_t step)
{
    uint64_t vector = (uint64_t{tile} * piece.steps + step) * threads + threadIdx.x;
    Batch<count> batch;
    batch.at = piece.cut.head * piece.size + vector * sizeof(Vector);
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        batch.valid[i] = piece.cut.aligned && step + i < piece.steps &&
                         vector + i * threads < piece.cut.vectors;
    }
    return batch;
}

/** What is not loaded is set: else registers would be kept for it from the last round on. */
template <uint32_t count> INLINE void batch_clear(Vector (&ret)[count])
{
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = Vector{};
    }
}

template <uint32_t count>
INLINE void batch_load(Vector (&ret)[count], const Batch<count> &batch, uint64_t address)
{
    batch_clear(ret);
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        if (batch.valid[i]) {
            machine_load(ret[i], address + batch.at + i * batch_distance);
        }
    }
}

template <uint32_t count>
INLINE void batch_store(const Vector (&values)[count], const Batch<count> &batch, uint64_t address)
{
    uint64_t first = address + batch.at;
    if (piece.streaming) {
#pragma unroll
        for (uint32_t i = 0; i < count; i++) {
            if (batch.valid[i]) {
                machine_store_streaming(first + i * batch_distance, values[i]);
            }
        }
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        if (batch.valid[i]) {
            machine_store(first + i * batch_distance, values[i]);
        }
    }
}

template <uint32_t count>
INLINE void outputs_store(const Vector (&values)[count], const Batch<count> &batch)
{
#pragma unroll 1
    for (uint32_t i = 0; i < piece.output_count; i++) {
        if (piece.outputs[i]) {
            batch_store(values, batch, piece.outputs[i]);
        }
    }
}

/* ------------------------------------------------------------------ lanes of a vector */

template <typename Lane> constexpr uint32_t vector_lanes = sizeof(Vector) / sizeof(Lane);

/** Lane @p index, known when compiled. */
template <typename Lane> INLINE Lane vector_lane(const Vector &vector, uint32_t index)
{
    if constexpr (sizeof(Lane) == 8) {
        uint64_t low = vector.words[index * 2], high = vector.words[index * 2 + 1];
        return static_cast<Lane>(high << 32 | low);
    } else {
        constexpr uint32_t lane_bits = 8 * sizeof(Lane), per_word = 32 / lane_bits;
        uint32_t word = vector.words[index / per_word];
        return static_cast<Lane>(word >> (index % per_word * lane_bits));
    }
}

/** Lanes are set in ascending order. */
template <typename Lane> INLINE void vector_set_lane(Vector &vector, uint32_t index, Lane lane)
{
    if constexpr (sizeof(Lane) == 8) {
        vector.words[index * 2] = static_cast<uint32_t>(static_cast<uint64_t>(lane));
        vector.words[index * 2 + 1] = static_cast<uint32_t>(static_cast<uint64_t>(lane) >> 32);
    } else {
        constexpr uint32_t lane_bits = 8 * sizeof(Lane), per_word = 32 / lane_bits;
        uint32_t bits = static_cast<std::make_unsigned_t<Lane>>(lane);
        uint32_t shift = index % per_word * lane_bits;
        uint32_t &word = vector.words[index / per_word];
        word = shift ? word | bits << shift : bits;
    }
}

/* ------------------------------------------------------------------ elements one by one */

INLINE uint64_t element_load(uint64_t address, uint32_t size)
{
    switch (size) {
    case 1:
        return machine_load_element<uint8_t>(address);
    case 2:
        return machine_load_element<uint16_t>(address);
    case 4:
        return machine_load_element<uint32_t>(address);
    default:
        return machine_load_element<uint64_t>(address);
    }
}

INLINE void element_store(uint64_t address, uint32_t size, uint64_t bits)
{
    switch (size) {
    case 1:
        return machine_store_element(address, static_cast<uint8_t>(bits));
    case 2:
        return machine_store_element(address, static_cast<uint16_t>(bits));
    case 4:
        return machine_store_element(address, static_cast<uint32_t>(bits));
    default:
        return machine_store_element(address, bits);
    }
}

/** Elements that a thread takes one by one in a tile: index, index + step, ... below end. */
struct Elements {
    uint64_t index, end, step;
};

/** @param tile_bytes of a tile; only where the addresses reach no border together. */
INLINE Elements tile_elements(const Cut &cut, uint64_t count, uint32_t size, uint32_t tile,
                              uint32_t tile_bytes)
{
    uint32_t thread = threadIdx.x;
    if (cut.aligned) { /* head and tail, with the first tile */
        uint64_t behind = cut.vectors * (static_cast<uint32_t>(sizeof(Vector)) / size);
        uint64_t index = thread < cut.head ? thread : thread + behind;
        return Elements{tile == 0 ? index : count, count, count};
    }
    uint64_t first = uint64_t{tile} * (tile_bytes / size), end = first + tile_bytes / size;
    return Elements{first + thread, end < count ? end : count, threads};
}

INLINE Elements piece_elements(uint32_t tile)
{
    return tile_elements(piece.cut, piece.count, piece.size, tile, piece.steps * step_bytes);
}

INLINE void outputs_store_element(uint64_t at, uint32_t size, uint64_t bits)
{
#pragma unroll 1
    for (uint32_t i = 0; i < piece.output_count; i++) {
        if (piece.outputs[i]) {
            element_store(piece.outputs[i] + at, size, bits);
        }
    }
}

/** Fold one element of all inputs and write it to the outputs. */
template <typename Fold> INLINE void reduce_element(const Fold &fold, uint64_t index)
{
    using Lane = typename Fold::Lane;
    uint32_t size = Fold::bytewise ? piece.size : static_cast<uint32_t>(sizeof(Lane));
    uint64_t at = index * size;
    typename Fold::Accumulator sum{};
#pragma unroll 1
    for (uint32_t i = 0; i < piece.input_count; i++) {
        uint64_t bits = element_load(piece.inputs[i] + at, size);
        typename Fold::Accumulator value = fold.load(static_cast<Lane>(bits));
        sum = i == 0 ? value : fold.fold(sum, value);
    }
    outputs_store_element(at, size, fold.finish(sum));
}

template <typename Fold> INLINE void reduce_elements(const Fold &fold, const Elements &elements)
{
#pragma unroll 1
    for (uint64_t index = elements.index; index < elements.end; index += elements.step) {
        reduce_element(fold, index);
    }
}

/** Copy elements of the first input to the outputs, several on their way at once. */
INLINE void copy_elements(const Elements &elements)
{
    constexpr uint32_t together = 4;
    uint32_t size = piece.size;
#pragma unroll 1
    for (uint64_t index = elements.index; index < elements.end; index += together * elements.step) {
        uint64_t bits[together];
#pragma unroll
        for (uint32_t i = 0; i < together; i++) {
            uint64_t at = index + i * elements.step;
            bits[i] = at < elements.end ? element_load(piece.inputs[0] + at * size, size) : 0;
        }
#pragma unroll
        for (uint32_t i = 0; i < together; i++) {
            uint64_t at = index + i * elements.step;
            if (at < elements.end) {
                outputs_store_element(at * size, size, bits[i]);
            }
        }
    }
}

#endif
