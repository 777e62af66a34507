#ifndef SYMTENSOR_GPU_KERNELS_MULTICAST_CUH
#define SYMTENSOR_GPU_KERNELS_MULTICAST_CUH

#include "gpu/kernels/move.cuh"

/**
 * symtensor_multicast: as symtensor_move, but a reduction reads its vectors already reduced from
 * the multicast address, and what goes to all ranks is written once to the multicast address (PTX
 * ISA, multimem.ld_reduce and multimem.st, sm_90). Elements that fill no vector, and movements
 * whose addresses do not reach a 16-byte border together, go through the addresses of the ranks.
 */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/** The multicast addresses of the piece's first element; 0: through the addresses of the ranks. */
struct Switch {
    uint64_t input, output;
};

__shared__ Switch switch_piece;

/**
 * Writes of other devices that came before are seen, and ours are seen after: at the scope of the
 * system, and through each address of the same memory.
 */
INLINE void switch_fence()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("fence.proxy.alias;" ::: "memory");
}

/* ------------------------------------------------------------------ the switch's instructions */

/** What the switch does with one dtype: reduce 16 bytes of all members. */
template <uint32_t op, uint32_t dtype> struct SwitchReduce;

#define SWITCH_LOAD "multimem.ld_reduce.relaxed.sys.global."

#define SWITCH_REDUCE(op, dtype, ...)                                                              \
    template <> struct SwitchReduce<ST_OP_##op, ST_DTYPE_##dtype> {                                \
        __device__ static void load(Vector &ret, uint64_t address)                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    };

/** Four registers at once, which only floats have. */
#define SWITCH_VECTOR(type)                                                                        \
    asm volatile(SWITCH_LOAD type " {%0, %1, %2, %3}, [%4];"                                       \
                 : "=r"(ret.words[0]), "=r"(ret.words[1]), "=r"(ret.words[2]), "=r"(ret.words[3])  \
                 : "l"(address)                                                                    \
                 : "memory");

#define SWITCH_FLOAT32(type)                                                                       \
    float a, b, c, d;                                                                              \
    asm volatile(SWITCH_LOAD type " {%0, %1, %2, %3}, [%4];"                                       \
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d)                                              \
                 : "l"(address)                                                                    \
                 : "memory");                                                                      \
    ret = Vector{{machine_float_bits(a), machine_float_bits(b), machine_float_bits(c),             \
                  machine_float_bits(d)}};

/** Two elements of 64 bits. */
#define SWITCH_LONGS(type)                                                                         \
    for (uint32_t i = 0; i < 2; i++) {                                                             \
        uint64_t element;                                                                          \
        asm volatile(SWITCH_LOAD type " %0, [%1];"                                                 \
                     : "=l"(element)                                                               \
                     : "l"(address + 8 * i)                                                        \
                     : "memory");                                                                  \
        vector_set_lane(ret, i, element);                                                          \
    }

#define SWITCH_DOUBLES(type)                                                                       \
    for (uint32_t i = 0; i < 2; i++) {                                                             \
        double element;                                                                            \
        asm volatile(SWITCH_LOAD type " %0, [%1];"                                                 \
                     : "=d"(element)                                                               \
                     : "l"(address + 8 * i)                                                        \
                     : "memory");                                                                  \
        vector_set_lane(ret, i, machine_double_bits(element));                                     \
    }

/** Four elements of 32 bits, or bits. */
#define SWITCH_WORDS(type)                                                                         \
    for (uint32_t i = 0; i < 4; i++) {                                                             \
        asm volatile(SWITCH_LOAD type " %0, [%1];"                                                 \
                     : "=r"(ret.words[i])                                                          \
                     : "l"(address + 4 * i)                                                        \
                     : "memory");                                                                  \
    }

/** What the switch reduces: op, dtype and how. Other integers are brought to these. */
#define SWITCH_PAIRS(X)                                                                            \
    X(SUM, FLOAT32, SWITCH_FLOAT32("add.v4.f32"))                                                  \
    X(SUM, FLOAT16, SWITCH_VECTOR("add.acc::f32.v4.f16x2"))                                        \
    X(SUM, BFLOAT16, SWITCH_VECTOR("add.acc::f32.v4.bf16x2"))                                      \
    X(SUM, FLOAT64, SWITCH_DOUBLES("add.f64"))                                                     \
    X(SUM, UINT32, SWITCH_WORDS("add.u32"))                                                        \
    X(SUM, UINT64, SWITCH_LONGS("add.u64"))                                                        \
    X(MIN, UINT32, SWITCH_WORDS("min.u32"))                                                        \
    X(MIN, INT32, SWITCH_WORDS("min.s32"))                                                         \
    X(MIN, UINT64, SWITCH_LONGS("min.u64"))                                                        \
    X(MIN, INT64, SWITCH_LONGS("min.s64"))                                                         \
    X(MAX, UINT32, SWITCH_WORDS("max.u32"))                                                        \
    X(MAX, INT32, SWITCH_WORDS("max.s32"))                                                         \
    X(MAX, UINT64, SWITCH_LONGS("max.u64"))                                                        \
    X(MAX, INT64, SWITCH_LONGS("max.s64"))                                                         \
    X(BAND, UINT32, SWITCH_WORDS("and.b32"))                                                       \
    X(BOR, UINT32, SWITCH_WORDS("or.b32"))                                                         \
    X(BXOR, UINT32, SWITCH_WORDS("xor.b32"))

SWITCH_PAIRS(SWITCH_REDUCE)

/** Write 16 bytes to all members. */
INLINE void switch_store(uint64_t address, const Vector &value)
{
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "f"(machine_float(value.words[0])),
                   "f"(machine_float(value.words[1])), "f"(machine_float(value.words[2])),
                   "f"(machine_float(value.words[3]))
                 : "memory");
}

/* ------------------------------------------------------------------ the pairs */

/** The switch's sum, divided; 16-bit sums are rounded by the switch before. */
template <typename F> INLINE void switch_divide(Vector &vector, uint32_t divisor)
{
    using Code = typename F::Code;
    auto divide_by = static_cast<typename F::Accumulator>(divisor);
    Vector result{};
#pragma unroll
    for (uint32_t i = 0; i < vector_lanes<Code>; i++) {
        auto sum = F::decode(vector_lane<Code>(vector, i));
        vector_set_lane(result, i, F::encode(sum / divide_by));
    }
    vector = result;
}

/** A pair as a type, with what follows the reduction. */
template <uint32_t op_, uint32_t dtype_> struct SwitchPair {
    static constexpr uint32_t op = op_, dtype = dtype_;
    INLINE void finish(Vector &vector, uint32_t divisor)
    {
        using R = Row<dtype>;
        if constexpr (R::kind == ST_KIND_FLOAT && op == ST_OP_SUM && R::bytes <= 4) {
            if (divisor != 1) {
                switch_divide<Float<R::bytes, R::mantissa, R::specials>>(vector, divisor);
            }
        }
    }
};

/** Call visit(SwitchPair). @return false for a pair that the switch does not have. */
template <typename Visitor>
INLINE bool switch_choose(uint32_t op, uint32_t dtype, const Visitor &visit)
{
    constexpr uint32_t integers =
        1u << ST_DTYPE_INT32 | 1u << ST_DTYPE_UINT32 | 1u << ST_DTYPE_INT64 | 1u << ST_DTYPE_UINT64;
    bool is_integer = integers >> dtype & 1;
    if (is_integer && (op == ST_OP_BAND || op == ST_OP_BOR || op == ST_OP_BXOR)) {
        dtype = ST_DTYPE_UINT32; /* bits are bits */
    } else if (is_integer && op == ST_OP_SUM) {
        dtype = element_unsigned(element_size(dtype)); /* wraps the same */
    } else if (op == ST_OP_AVG && !is_integer && dtype != ST_DTYPE_FLOAT64) {
        op = ST_OP_SUM;
    }
#define PAIR(name, type, how)                                                                      \
    if (op == ST_OP_##name && dtype == ST_DTYPE_##type) {                                          \
        visit(SwitchPair<ST_OP_##name, ST_DTYPE_##type>{});                                        \
        return true;                                                                               \
    }
    SWITCH_PAIRS(PAIR)
#undef PAIR
    return false;
}

/* ------------------------------------------------------------------ vectors and elements */

/** Through the switch where the output has a multicast address, else to each output. */
INLINE void switch_write(const Vector (&value)[1], const Batch<1> &batch)
{
    if (switch_piece.output) {
        switch_store(switch_piece.output + batch.at, value[0]);
    } else {
        outputs_store(value, batch);
    }
}

template <typename Pair> INLINE void switch_reduce_tiles(uint32_t tile)
{
    uint32_t divisor = piece.op == ST_OP_AVG ? piece.world_size : 1;
#pragma unroll 1
    for (; tile < piece.tiles; tile += gridDim.x) {
#pragma unroll 1
        for (uint32_t step = 0; step < piece.steps; step++) {
            Batch<1> batch = batch_begin<1>(tile, step);
            if (batch.valid[0]) {
                Vector value[1];
                SwitchReduce<Pair::op, Pair::dtype>::load(value[0], switch_piece.input + batch.at);
                Pair::finish(value[0], divisor);
                switch_write(value, batch);
            }
        }
    }
}

INLINE void switch_copy_tiles(uint32_t tile)
{
#pragma unroll 1
    for (; tile < piece.tiles; tile += gridDim.x) {
#pragma unroll 1
        for (uint32_t step = 0; step < piece.steps; step++) {
            Batch<1> batch = batch_begin<1>(tile, step);
            if (batch.valid[0]) {
                Vector value[1];
                batch_load(value, batch, piece.inputs[0]);
                switch_write(value, batch);
            }
        }
        copy_elements(piece_elements(tile));
    }
}

/** A reduction: the vectors with the switch, the elements rank by rank. */
INLINE void switch_reduce(uint32_t tile)
{
    bool known = switch_choose(piece.op, piece.dtype,
                               [&](auto pair) { switch_reduce_tiles<decltype(pair)>(tile); });
    if (!known) {
        machine_trap();
    }
    fold_choose(piece.op, piece.dtype, [&](auto choice) {
        const typename decltype(choice)::Fold fold(piece.op, piece.dtype, piece.world_size);
        for (uint32_t at = tile; at < piece.tiles; at += gridDim.x) {
            reduce_elements(fold, piece_elements(at));
        }
    });
}

/* ------------------------------------------------------------------ the kernel */

/** After piece_share(): the multicast addresses, and the cut that they give. */
INLINE void switch_share(const gpu_multicast_params &multicast, uint32_t index, const Part &part)
{
    const gpu_movement &movement = multicast.move.movements[index];
    bool reads = movement.kind == GPU_MOVEMENT_REDUCE;
    bool writes = movement.destination_rank == GPU_RANK_ALL && multicast.multicast_output;
    if (threadIdx.x == 0) {
        uint64_t source = (movement.source_offset + part.first) * piece.size;
        uint64_t destination = (movement.destination_offset + part.first) * piece.size;
        Switch addresses = {reads ? multicast.multicast_input + source : 0,
                            writes ? multicast.multicast_output + destination : 0};
        uint64_t from = reads ? addresses.input : piece.inputs[0], differ = 0;
        if (writes) {
            differ = addresses.output ^ from;
        } else {
            for (uint32_t i = 0; i < piece.output_count; i++) {
                differ |= piece.outputs[i] ? piece.outputs[i] ^ from : 0;
            }
        }
        piece.cut = cut_elements(piece.count, piece.size, from, differ);
        if (reads && !multicast.multicast_input) {
            piece.cut.aligned = false; /* nothing for the switch to read */
        }
        switch_piece = addresses;
    }
    __syncthreads();
}

INLINE void multicast_piece(uint32_t tile)
{
    if (piece.kind == GPU_MOVEMENT_REDUCE) {
        switch_reduce(tile);
    } else if (piece.kind == GPU_MOVEMENT_COPY) {
        switch_copy_tiles(tile);
    } else {
        machine_trap(); /* an exchange has nothing for the switch */
    }
}

INLINE void multicast_run(const gpu_multicast_params &multicast)
{
    switch_fence();
    launch_run(
        multicast.move,
        [&](uint32_t index, const Part &part) { switch_share(multicast, index, part); },
        [&](uint32_t tile) { multicast_piece(tile); });
    switch_fence();
}

#else

/** There are no multicast addresses: whoever launches this is wrong. */
INLINE void multicast_run(const gpu_multicast_params &)
{
    machine_trap();
}

#endif

#endif
