#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/size.h"
#include "gpu/driver/driver.h"

#define FAULTS_MAX 64               /* armed at a time */
#define FAULTS_ANY GPU_CALL_COUNT   /* in place of a call */
#define FAULTS_TEXT_MAX 4096        /* bytes of the environment's text */
#define FAULTS_HANG_MS_MAX 86400000 /* one day */

/** One armed fault. */
struct fault {
    enum gpu_driver_call call; /**< Or FAULTS_ANY. */
    uint64_t left;             /**< Matching calls until it fires; 0: it has fired. */
    CUresult result;           /**< What the call answers; not used by a hang. */
    uint32_t hang_ms;          /**< > 0: hold the call for so long, then let it through. */
};

static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER; /* of the next four */
static struct fault faults_armed[FAULTS_MAX];
static unsigned faults_count;
static bool faults_fired;
static struct {
    void (*log)(void *arg, const struct gpu_call_record *record);
    void *arg;
} faults_log;

/* Whether any fault is armed or a log is set: the only thing that an ordinary call looks at. */
static _Atomic bool faults_watched;
static _Atomic uint64_t faults_calls[GPU_CALL_COUNT];
static const struct gpu_driver *faults_inner;
static _Thread_local uint32_t faults_handle_types;
static _Thread_local struct {
    void (*returned)(void *arg); /**< NULL: nobody looks at this thread. */
    void *arg;
} faults_watcher;

/* A destructor that fails leaks by definition, so a sweep over "any call" leaves them out. */
static const bool faults_destructors[GPU_CALL_COUNT] = {
    [GPU_CALL_cuDevicePrimaryCtxRelease] = true,
    [GPU_CALL_cuMemRelease] = true,
    [GPU_CALL_cuMemAddressFree] = true,
    [GPU_CALL_cuMemUnmap] = true,
    [GPU_CALL_cuMulticastUnbind] = true,
    [GPU_CALL_cuMemFreeHost] = true,
    [GPU_CALL_cuStreamDestroy] = true,
    [GPU_CALL_cuEventDestroy] = true,
    [GPU_CALL_cuModuleUnload] = true,
    [GPU_CALL_cuGraphDestroy] = true,
    [GPU_CALL_cuGraphExecDestroy] = true,
};

/** Count @p call against every armed fault. @return one that fires now, by value in *ret_fault. */
static bool faults_match(enum gpu_driver_call call, struct fault *ret_fault)
{
    bool fires = false;
    pthread_mutex_lock(&faults_lock);
    for (unsigned i = 0; i < faults_count; i++) {
        struct fault *fault = &faults_armed[i];
        bool matches =
            fault->call == call || (fault->call == FAULTS_ANY && !faults_destructors[call]);
        if (!matches || !fault->left || --fault->left || fires) {
            continue;
        }
        *ret_fault = *fault;
        fires = true;
        faults_fired = true;
    }
    pthread_mutex_unlock(&faults_lock);
    return fires;
}

/** @return whether a fault answers the call, with *ret_result. Holds the call when it is a hang. */
static bool faults_intercept(enum gpu_driver_call call, CUresult *ret_result)
{
    struct fault fault = {0};
    if (!faults_match(call, &fault)) {
        return false;
    }
    if (fault.hang_ms) {
        struct timespec rest = {.tv_sec = fault.hang_ms / 1000,
                                .tv_nsec = (long)(fault.hang_ms % 1000) * (long)ST_NS_PER_MS};
        nanosleep(&rest, NULL);
        return false;
    }
    *ret_result = fault.result;
    return true;
}

static void faults_tell(enum gpu_driver_call call, CUresult result, bool injected)
{
    pthread_mutex_lock(&faults_lock);
    void (*log)(void *, const struct gpu_call_record *) = faults_log.log;
    void *arg = faults_log.arg;
    pthread_mutex_unlock(&faults_lock);
    if (log) {
        struct gpu_call_record record = {call, result, injected, 0};
        record.handle_types = call == GPU_CALL_cuMemCreate ? faults_handle_types : 0;
        log(arg, &record);
    }
}

static inline CUresult faults_returned(CUresult result)
{
    if (faults_watcher.returned) {
        faults_watcher.returned(faults_watcher.arg);
    }
    return result;
}

void gpu_driver_watch_thread(void (*returned)(void *arg), void *arg)
{
    faults_watcher.returned = returned;
    faults_watcher.arg = arg;
}

#define X(call, params, args)                                                                      \
    static CUresult wrapped_##call params                                                          \
    {                                                                                              \
        atomic_fetch_add_explicit(&faults_calls[GPU_CALL_##call], 1, memory_order_relaxed);        \
        if (!atomic_load_explicit(&faults_watched, memory_order_relaxed)) {                        \
            return faults_returned(faults_inner->call args);                                       \
        }                                                                                          \
        CUresult result = CUDA_SUCCESS;                                                            \
        bool injected = faults_intercept(GPU_CALL_##call, &result);                                \
        if (!injected) {                                                                           \
            result = faults_inner->call args;                                                      \
        }                                                                                          \
        faults_tell(GPU_CALL_##call, result, injected);                                            \
        return faults_returned(result);                                                            \
    }
GPU_DRIVER_CALLS(X)
#undef X

/** The log shows what kind of memory was asked for: keep it aside on the way in. */
static CUresult noted_mem_create(CUmemGenericAllocationHandle *handle, size_t size,
                                 const CUmemAllocationProp *prop, unsigned long long flags)
{
    faults_handle_types = prop ? (uint32_t)prop->requestedHandleTypes : 0;
    return wrapped_cuMemCreate(handle, size, prop, flags);
}

const struct gpu_driver *gpu_faults_wrap(const struct gpu_driver *inner)
{
    static struct gpu_driver wrapped = {
#define X(call, params, args) .call = wrapped_##call,
        GPU_DRIVER_CALLS(X)
#undef X
    };
    faults_inner = inner;
    wrapped.name = inner->name;
    wrapped.cuMemCreate = noted_mem_create;
    return &wrapped;
}

/** Arm one more; false when the table is full. */
static bool faults_add(struct fault fault)
{
    pthread_mutex_lock(&faults_lock);
    bool fits = faults_count < FAULTS_MAX;
    if (fits) {
        faults_armed[faults_count++] = fault;
        atomic_store(&faults_watched, true);
    }
    pthread_mutex_unlock(&faults_lock);
    return fits;
}

void gpu_faults_arm(enum gpu_driver_call call, uint64_t nth, CUresult result)
{
    (void)faults_add((struct fault){.call = call, .left = nth, .result = result});
}

void gpu_faults_arm_any(uint64_t nth, CUresult result)
{
    (void)faults_add((struct fault){.call = FAULTS_ANY, .left = nth, .result = result});
}

void gpu_faults_arm_hang(enum gpu_driver_call call, uint64_t nth, uint32_t milliseconds)
{
    (void)faults_add((struct fault){.call = call, .left = nth, .hang_ms = milliseconds});
}

bool gpu_faults_disarm(void)
{
    pthread_mutex_lock(&faults_lock);
    bool fired = faults_fired;
    faults_fired = false;
    faults_count = 0;
    atomic_store(&faults_watched, faults_log.log != NULL);
    pthread_mutex_unlock(&faults_lock);
    return fired;
}

uint64_t gpu_faults_calls(enum gpu_driver_call call)
{
    return atomic_load_explicit(&faults_calls[call], memory_order_relaxed);
}

void gpu_faults_log(void (*log)(void *arg, const struct gpu_call_record *record), void *arg)
{
    pthread_mutex_lock(&faults_lock);
    faults_log.log = log;
    faults_log.arg = arg;
    atomic_store(&faults_watched, log || faults_count);
    pthread_mutex_unlock(&faults_lock);
}

/** How the two environment texts differ. */
struct faults_syntax {
    const char *variable;
    const char *form;
    char last_separator; /**< Between the n-th and the value. */
    bool hang;           /**< The value is milliseconds; else a CUresult. */
    uint64_t value_max;
};

static const struct faults_syntax faults_syntax_results = {"SYMTENSOR_FAULTS", "CALL:NTH=RESULT",
                                                           '=', false, INT32_MAX};
static const struct faults_syntax faults_syntax_hangs = {
    "SYMTENSOR_SOFTWARE_HANG", "CALL:NTH:MILLISECONDS", ':', true, FAULTS_HANG_MS_MAX};

/** Parse one item, which is cut up in place. */
static bool faults_parse_item(const struct faults_syntax *syntax, char *item, struct fault *ret)
{
    char *nth = strchr(item, ':');
    char *value = nth ? strchr(nth + 1, syntax->last_separator) : NULL;
    if (!value) {
        return false;
    }
    *nth++ = '\0';
    *value++ = '\0';
    struct fault fault = {.call = FAULTS_ANY};
    uint64_t number;
    bool any = !syntax->hang && !strcmp(item, "any");
    if ((!any && !gpu_driver_call_find(item, &fault.call)) ||
        !st_uint_parse(nth, UINT64_MAX, &fault.left) || fault.left == 0 ||
        !st_uint_parse(value, syntax->value_max, &number) || number == 0) {
        return false;
    }
    fault.result = syntax->hang ? CUDA_SUCCESS : (CUresult)number;
    fault.hang_ms = syntax->hang ? (uint32_t)number : 0;
    *ret = fault;
    return true;
}

static bool faults_parse(const struct faults_syntax *syntax, const char *text, struct st_error *err)
{
    if (!text || !*text) {
        return true;
    }
    char copy[FAULTS_TEXT_MAX];
    struct fault parsed[FAULTS_MAX];
    unsigned count = 0;
    char quoted[80];
    if (strlen(text) >= sizeof(copy)) {
        (void)st_fail(err, ST_REASON_INVALID_OPTION, syntax->variable, "more than %zu bytes",
                      sizeof(copy) - 1);
        return false;
    }
    memcpy(copy, text, strlen(text) + 1);
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        st_error_quote(item, quoted);
        if (count == FAULTS_MAX || !faults_parse_item(syntax, item, &parsed[count])) {
            (void)st_fail(err, ST_REASON_INVALID_OPTION, syntax->variable,
                          "\"%s\" is not %s, or one too many (at most %d)", quoted, syntax->form,
                          FAULTS_MAX);
            return false;
        }
        count++;
    }
    for (unsigned i = 0; i < count; i++) {
        (void)faults_add(parsed[i]);
    }
    return true;
}

bool gpu_faults_parse(const char *text, struct st_error *err)
{
    return faults_parse(&faults_syntax_results, text, err);
}

bool gpu_faults_parse_hangs(const char *text, struct st_error *err)
{
    return faults_parse(&faults_syntax_hangs, text, err);
}
