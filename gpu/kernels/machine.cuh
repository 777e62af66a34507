#ifndef SYMTENSOR_GPU_KERNELS_MACHINE_CUH
#define SYMTENSOR_GPU_KERNELS_MACHINE_CUH

#include <stdint.h>

/**
 * What the kernels ask of the machine beyond C++: 16-byte accesses with a word about the cache, and
 * the conversions of float16. Everything else is arithmetic, which the flags of the build make
 * IEEE 754's.
 */

/** The four words of a 16-byte access. */
struct Vector {
    uint32_t words[4];
};

/**
 * Loads pass the first-level cache by: nothing is read twice. What streaming stores write is the
 * first to leave the second level, since the launch moves more than it holds. All are volatile, so
 * that the order in which they are written down is kept: in place, a range is read before it is
 * written.
 */
__device__ static inline void machine_load(Vector &ret, uint64_t address)
{
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ret.words[0]), "=r"(ret.words[1]), "=r"(ret.words[2]), "=r"(ret.words[3])
                 : "l"(address)
                 : "memory");
}

__device__ static inline void machine_store(uint64_t address, const Vector &value)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "r"(value.words[0]), "r"(value.words[1]), "r"(value.words[2]),
                   "r"(value.words[3])
                 : "memory");
}

__device__ static inline void machine_store_streaming(uint64_t address, const Vector &value)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "r"(value.words[0]), "r"(value.words[1]), "r"(value.words[2]),
                   "r"(value.words[3])
                 : "memory");
}

/** One element of a type, at an address that is aligned to it. */
template <typename T> __device__ static inline T machine_load_element(uint64_t address)
{
    return *reinterpret_cast<const volatile T *>(address);
}

template <typename T> __device__ static inline void machine_store_element(uint64_t address, T value)
{
    *reinterpret_cast<volatile T *>(address) = value;
}

__device__ static inline uint32_t machine_float_bits(float value)
{
    return __float_as_uint(value);
}

__device__ static inline float machine_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

__device__ static inline uint64_t machine_double_bits(double value)
{
    return static_cast<uint64_t>(__double_as_longlong(value));
}

__device__ static inline double machine_double(uint64_t bits)
{
    return __longlong_as_double(static_cast<long long>(bits));
}

/** float16 to float32: exact, subnormals included. */
__device__ static inline float machine_float_from_half(uint16_t code)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
    return value;
}

/** float32 to float16: to nearest even; overflow is infinity; NaN is some NaN. */
__device__ static inline uint16_t machine_half_from_float(float value)
{
    uint16_t code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
}

/** The largest float32 that is not above the index. */
__device__ static inline float machine_float_below(uint64_t index)
{
    return __ull2float_rz(index);
}

/** What a lane of the warp has, or the one so many below; all lanes come here. */
__device__ static inline uint32_t machine_from_lane(uint32_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
}

__device__ static inline uint32_t machine_from_below(uint32_t value, uint32_t distance)
{
    return __shfl_up_sync(0xffffffffu, value, distance);
}

/** Bit i: the condition of lane i; all lanes come here. */
__device__ static inline uint32_t machine_ballot(bool condition)
{
    return __ballot_sync(0xffffffffu, condition);
}

/** End the launch in an error that stays. */
__device__ static inline void machine_trap()
{
    __trap();
}

#endif
