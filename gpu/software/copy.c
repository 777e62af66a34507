#include <string.h>

#include "gpu/software/internal.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/**
 * Copies and fills. The operands are checked at once, as the real driver does (a bad address is 1,
 * not a sticky error), and again when the command starts. A copy from or to host memory that is not
 * pinned is done before the call returns.
 */

#define COPY_LINE 64u       /* bytes of a cache line */
#define COPY_PREFETCH 1024u /* how far ahead a streaming copy asks for its source */

/** One side of a copy. */
struct copy_side {
    uint64_t address;
    bool operand; /**< To be checked; else the caller's own host memory. */
};

/* ---------------------------------------------------------------- moving bytes */

/** Copy past the caches. The caller publishes. */
static void copy_streaming(char *to, const char *from, uint64_t bytes)
{
#ifdef __SSE2__
    uint64_t head = -(uintptr_t)to & (COPY_LINE - 1);
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    uint64_t at = head;
    for (; bytes - at >= COPY_LINE; at += COPY_LINE) {
        const __m128i *source = (const void *)(from + at);
        __m128i *target = (void *)(to + at);
        _mm_prefetch(from + at + COPY_PREFETCH, _MM_HINT_NTA);
        __m128i a = _mm_loadu_si128(source);
        __m128i b = _mm_loadu_si128(source + 1);
        __m128i c = _mm_loadu_si128(source + 2);
        __m128i d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to + at, from + at, bytes - at);
#else
    memcpy(to, from, bytes);
#endif
}

static void fill_streaming(char *to, unsigned char value, uint64_t bytes)
{
#ifdef __SSE2__
    uint64_t head = -(uintptr_t)to & (COPY_LINE - 1);
    head = head < bytes ? head : bytes;
    memset(to, value, head);
    uint64_t at = head;
    __m128i wide = _mm_set1_epi8((char)value);
    for (; bytes - at >= COPY_LINE; at += COPY_LINE) {
        __m128i *target = (void *)(to + at);
        _mm_stream_si128(target, wide);
        _mm_stream_si128(target + 1, wide);
        _mm_stream_si128(target + 2, wide);
        _mm_stream_si128(target + 3, wide);
    }
    memset(to + at, value, bytes - at);
#else
    memset(to, value, bytes);
#endif
}

static uint32_t copy_operands(const struct software_command *command, struct gpu_operand *ret)
{
    uint32_t count = 0;
    uint64_t bytes = command->u.copy.bytes;
    if (command->u.copy.check_to) {
        ret[count++] = (struct gpu_operand){(uintptr_t)command->u.copy.to, bytes, true, false};
    }
    if (command->u.copy.check_from) {
        ret[count++] = (struct gpu_operand){(uintptr_t)command->u.copy.from, bytes, false, false};
    }
    return count;
}

static enum software_start copy_start(struct software_command *command)
{
    struct gpu_operand operands[2];
    uint32_t count = copy_operands(command, operands);
    struct software_context *context = command->stream->context;
    if (!software_operands_pin(context->device, operands, count, &command->pins)) {
        atomic_store(&context->error, CUDA_ERROR_ILLEGAL_ADDRESS); /* unmapped since the call */
        return SOFTWARE_START_DONE;
    }
    command->chunk_count =
        (command->u.copy.bytes + SOFTWARE_CHUNK_BYTES - 1) / SOFTWARE_CHUNK_BYTES;
    return SOFTWARE_START_CHUNKS;
}

static void copy_run(const struct software_command *command, uint64_t chunk)
{
    uint64_t offset = chunk * SOFTWARE_CHUNK_BYTES;
    uint64_t left = command->u.copy.bytes - offset;
    uint64_t bytes = left < SOFTWARE_CHUNK_BYTES ? left : SOFTWARE_CHUNK_BYTES;
    char *to = command->u.copy.to + offset;
    const char *from = command->u.copy.from ? command->u.copy.from + offset : NULL;
    if (from && command->u.copy.streaming) {
        copy_streaming(to, from, bytes);
    } else if (from) {
        memmove(to, from, bytes);
    } else if (command->u.copy.streaming) {
        fill_streaming(to, command->u.copy.value, bytes);
    } else {
        memset(to, command->u.copy.value, bytes);
    }
}

static const struct software_command_kind copy_kind = {.start = copy_start, .run = copy_run};

/* ---------------------------------------------------------------- submitting */

/** Check and submit; the command's u.copy is filled but for streaming. */
static CUresult copy_submit(CUstream handle, struct software_command *command)
{
    struct software_stream *stream;
    CUresult result = software_enter_stream(handle, &stream);
    if (result) {
        return result;
    }
    uint64_t bytes = command->u.copy.bytes;
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    struct gpu_operand operands[2];
    uint32_t count = copy_operands(command, operands);
    for (uint32_t i = 0; i < count; i++) {
        if (!software_operand_check(stream->context->device, &operands[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    uint64_t traffic = command->u.copy.from ? 2 * bytes : bytes;
    command->kind = &copy_kind;
    command->u.copy.streaming = traffic > software.cache_bytes / 2;
    result = software_stream_submit(stream, command, 0, traffic <= SOFTWARE_SMALL_BYTES);
    bool pageable =
        !command->u.copy.check_to || (command->u.copy.from && !command->u.copy.check_from);
    return result || !pageable ? result : software_stream_wait(stream);
}

static CUresult copy_sides(struct copy_side to, struct copy_side from, uint64_t bytes,
                           CUstream stream)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (bytes && (!to.address || !from.address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_command command = {0};
    command.u.copy.to = (char *)(uintptr_t)to.address;
    command.u.copy.from = (const char *)(uintptr_t)from.address;
    command.u.copy.bytes = bytes;
    command.u.copy.check_to = to.operand;
    command.u.copy.check_from = from.operand;
    return copy_submit(stream, &command);
}

/** A side that may be either: one of our addresses, or the caller's own memory. */
static struct copy_side copy_side_any(uint64_t address)
{
    return (struct copy_side){address, software_address_known(address)};
}

static struct copy_side copy_side_device(uint64_t address)
{
    return (struct copy_side){address, true};
}

CUresult software_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_sides(copy_side_any(to), copy_side_any(from), bytes, stream);
}

CUresult software_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_sides(copy_side_device(to), copy_side_any((uintptr_t)from), bytes, stream);
}

CUresult software_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_sides(copy_side_any((uintptr_t)to), copy_side_device(from), bytes, stream);
}

CUresult software_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_sides(copy_side_device(to), copy_side_device(from), bytes, stream);
}

CUresult software_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                  CUstream stream)
{
    struct software_command command = {0};
    command.u.copy.to = (char *)(uintptr_t)to;
    command.u.copy.bytes = bytes;
    command.u.copy.value = value;
    command.u.copy.check_to = true;
    return copy_submit(stream, &command);
}
