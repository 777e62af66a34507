#include "tests/bench/bare_loop.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"

#define BARE_THREADS_MAX 64

struct bare_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    unsigned generation, running;
    const struct bare_work *work;
    const struct bare_variant *variant;
};

static struct bare_pool pool = {PTHREAD_MUTEX_INITIALIZER,
                                PTHREAD_COND_INITIALIZER,
                                PTHREAD_COND_INITIALIZER,
                                0,
                                0,
                                NULL,
                                NULL};

__attribute__((target("avx512f"))) static void read_512(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        __m512i value = _mm512_load_si512((const void *)(from + i));
        __asm__ volatile("" : : "v"(value));
    }
}

__attribute__((target("avx512f"))) static void write_512(char *to, size_t bytes, bool non_temporal)
{
    __m512i value = _mm512_set1_epi32(0x3f800000);
    if (non_temporal) {
        for (size_t i = 0; i < bytes; i += 64) {
            _mm512_stream_si512((void *)(to + i), value);
        }
        return;
    }
    for (size_t i = 0; i < bytes; i += 64) {
        _mm512_store_si512((void *)(to + i), value);
    }
}

__attribute__((target("avx2"))) static void read_256(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 32) {
        __m256i value = _mm256_load_si256((const __m256i *)(const void *)(from + i));
        __asm__ volatile("" : : "x"(value));
    }
}

__attribute__((target("avx2"))) static void write_256(char *to, size_t bytes, bool non_temporal)
{
    __m256i value = _mm256_set1_epi32(0x3f800000);
    if (non_temporal) {
        for (size_t i = 0; i < bytes; i += 32) {
            _mm256_stream_si256((__m256i *)(void *)(to + i), value);
        }
        return;
    }
    for (size_t i = 0; i < bytes; i += 32) {
        _mm256_store_si256((__m256i *)(void *)(to + i), value);
    }
}

static void run_share(const struct bare_work *work, const struct bare_variant *variant,
                      unsigned index)
{
    bool wide = __builtin_cpu_supports("avx512f");
    void (*read)(const char *, size_t) = wide ? read_512 : read_256;
    void (*write)(char *, size_t, bool) = wide ? write_512 : write_256;
    size_t lines = work->bytes / 64;
    size_t first = lines * index / variant->threads * 64;
    size_t end = lines * (index + 1) / variant->threads * 64;
    for (size_t at = first; at < end; at += variant->block_bytes) {
        size_t bytes = end - at < variant->block_bytes ? end - at : variant->block_bytes;
        for (uint32_t i = 0; i < work->reads; i++) {
            read(work->input[i] + at, bytes);
        }
        for (uint32_t i = 0; i < work->writes; i++) {
            write(work->output[i] + at, bytes, variant->non_temporal);
        }
    }
    _mm_sfence();
}

static void *pool_thread(void *arg)
{
    unsigned index = (unsigned)(uintptr_t)arg;
    unsigned seen = 0;
    for (;;) {
        pthread_mutex_lock(&pool.lock);
        while (pool.generation == seen) {
            pthread_cond_wait(&pool.wake, &pool.lock);
        }
        seen = pool.generation;
        const struct bare_work *work = pool.work;
        const struct bare_variant *variant = pool.variant;
        pthread_mutex_unlock(&pool.lock);
        if (index < variant->threads) {
            run_share(work, variant, index);
        }
        pthread_mutex_lock(&pool.lock);
        if (--pool.running == 0) {
            pthread_cond_signal(&pool.finished);
        }
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

static unsigned pool_threads;

void bare_start(unsigned cores)
{
    pool_threads = cores < BARE_THREADS_MAX ? cores : BARE_THREADS_MAX;
    for (unsigned i = 1; i < pool_threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, pool_thread, (void *)(uintptr_t)i) != 0) {
            abort();
        }
        pthread_detach(thread);
    }
}

unsigned bare_variants(unsigned cores, struct bare_variant *ret, unsigned max)
{
    static const size_t blocks[] = {64, 512, 4096};
    unsigned count = 0;
    for (unsigned threads = 1; threads <= cores; threads++) {
        for (unsigned stores = 0; stores < 2; stores++) {
            for (unsigned i = 0; i < sizeof(blocks) / sizeof(blocks[0]) && count < max; i++) {
                ret[count++] = (struct bare_variant){threads, stores == 1, blocks[i]};
            }
        }
    }
    return count;
}

uint64_t bare_run(const struct bare_work *work, const struct bare_variant *variant)
{
    uint64_t start = st_clock_now_ns();
    bool shared = variant->threads > 1 && pool_threads > 1;
    if (shared) {
        pthread_mutex_lock(&pool.lock);
        pool.work = work;
        pool.variant = variant;
        pool.running = pool_threads - 1;
        pool.generation++;
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    run_share(work, variant, 0);
    if (shared) {
        pthread_mutex_lock(&pool.lock);
        while (pool.running > 0) {
            pthread_cond_wait(&pool.finished, &pool.lock);
        }
        pthread_mutex_unlock(&pool.lock);
    }
    return st_clock_now_ns() - start;
}
