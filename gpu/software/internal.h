#ifndef SYMTENSOR_GPU_SOFTWARE_INTERNAL_H
#define SYMTENSOR_GPU_SOFTWARE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/limits.h"
#include "base/size.h"
#include "base/timer.h"
#include "gpu/kernels/twin.h"
#include "gpu/software/software.h"

/**
 * What the files of the software driver share. There is one driver a process, as the entry points
 * of the table take no object.
 *
 * Locks, in the order in which they may be taken:
 *   software.memory_lock  allocations, reservations, mappings, multicast objects, pinned host
 * memory software.ranges_lock  (rwlock) what a running command looks up; written with memory_lock
 * held software.work_lock    streams, events and the pool's queues; never together with the first
 * two the handle table's    innermost No lock is held while a twin, a host function or a copy runs:
 * those hold pins instead (range.c).
 */

#define SOFTWARE_GRANULARITY (2 * ST_MIB)
#define SOFTWARE_SMALL_BYTES (256 * ST_KIB) /* traffic up to this runs on the submitting thread */
#define SOFTWARE_CHUNK_BYTES ST_MIB         /* of a copy or fill */
#define SOFTWARE_SLOTS_DEFAULT 128u
#define SOFTWARE_DEVICES_DEFAULT 4u
#define SOFTWARE_THREADS_MAX 512u

/* ---------------------------------------------------------------- handles (handle.c) */

enum software_kind {
    SOFTWARE_KIND_MEMORY = 1,
    SOFTWARE_KIND_MULTICAST,
    SOFTWARE_KIND_STREAM,
    SOFTWARE_KIND_EVENT,
    SOFTWARE_KIND_MODULE,
    SOFTWARE_KIND_FUNCTION,
    SOFTWARE_KIND_GRAPH,
    SOFTWARE_KIND_GRAPH_NODE,
    SOFTWARE_KIND_GRAPH_EXEC,
    SOFTWARE_KIND_END
};

/** A value that names @p object until it is deleted and never again; 0 when memory is out. */
uint64_t software_handle_new(enum software_kind kind, void *object);
/** The object, or NULL when the handle is stale, foreign or of another kind. Blocks: never. */
void *software_handle_find(uint64_t handle, enum software_kind kind);
void software_handle_delete(uint64_t handle);
/** Any object of @p kind for which @p matches says yes, or NULL. */
void *software_handle_search(enum software_kind kind, bool (*matches)(void *object, void *arg),
                             void *arg);
uint64_t software_handle_count(enum software_kind kind);
/** Forget the whole table. */
void software_handles_free(void);

/* ---------------------------------------------------------------- a sorted table of intervals
 * (interval.c) */

/** One interval [start, end) and what lies there. */
struct software_interval {
    uint64_t start, end;
    void *object;
};
/** Intervals that do not overlap, ascending. Not thread-safe. Zero-filled before first use. */
struct software_intervals {
    struct software_interval *items; /**< [count] */
    size_t count, capacity;
};
/** Index of the last interval that starts at or below @p at; count when there is none. */
size_t software_intervals_floor(const struct software_intervals *table, uint64_t at);
/** The object whose interval holds [start, start + bytes), bytes > 0, whole; or NULL. */
void *software_intervals_find(const struct software_intervals *table, uint64_t start,
                              uint64_t bytes);
bool software_intervals_overlap(const struct software_intervals *table, uint64_t start,
                                uint64_t end);
/** Room for one more, so that the next insert cannot fail. */
bool software_intervals_reserve(struct software_intervals *table);
void software_intervals_insert(struct software_intervals *table, uint64_t start, uint64_t end,
                               void *object);
/** Take out the interval that starts at @p start, which must exist. */
void software_intervals_remove(struct software_intervals *table, uint64_t start);
void software_intervals_free(struct software_intervals *table);

/* ---------------------------------------------------------------- the driver */

struct software_context {
    int device;
    _Atomic uint32_t retained;
    _Atomic int error; /**< CUresult that stays; 0: none. */
};

struct software_device {
    struct software_context context; /**< The primary one; there are no others. */
    uint64_t used_bytes;             /**< Of options.memory_bytes. memory_lock. */
};

struct software {
    struct gpu_software_options options; /**< Complete: no zero stands for a default. */
    uint64_t cache_bytes;                /**< Last-level cache. */
    bool huge_pages;          /**< The kernel gives shared memory huge pages on advice. */
    _Atomic bool initialised; /**< cuInit was called. */
    struct software_device devices[ST_DEVICES_MAX];

    pthread_mutex_t memory_lock;
    pthread_cond_t pins_released;            /**< With memory_lock. */
    struct software_allocation *allocations; /**< A list. memory_lock. */
    struct software_multicast *multicasts;   /**< A list. memory_lock. */
    struct software_intervals reservations;  /**< memory_lock. */
    uint32_t slots_used;                     /**< Multicast objects with a slot. memory_lock. */
    uint64_t bindings, host_allocations, mappings; /**< How many there are. memory_lock. */

    pthread_rwlock_t ranges_lock;
    struct software_intervals ranges; /**< Of struct software_range. */

    pthread_mutex_t work_lock;
    pthread_cond_t work_finished; /**< A command finished, while work_waiters > 0. */
    uint32_t work_waiters;
    _Atomic uint64_t streams_busy; /**< Streams with unfinished commands. */
    struct st_timers *timers;      /**< Only with a launch delay. */
};

extern struct software software;

/** What every entry point begins with: 3 before cuInit, 800 inside a host function. */
CUresult software_enter(void);
/** As software_enter(), and the thread's context: 201 when it has none, or its sticky error. */
CUresult software_enter_context(struct software_context **ret_context);
/** As software_enter(), and the device: 101 when there is no such. */
CUresult software_enter_device(CUdevice device);
/** The retained context of that value, or NULL. */
struct software_context *software_context_find(CUcontext context);
/** Call a host function; entry points answer 800 meanwhile. */
void software_host_call(CUhostFn function, void *data);
/** Whether @p device reaches memory on @p peer. */
bool software_peer_access(int device, int peer);

/* ---------------------------------------------------------------- the machine (machine.c) */

uint64_t software_machine_memory_bytes(void); /**< min(physical, cgroup limit). */
/** What the kernel believes can be allocated now without swapping. */
uint64_t software_machine_available_bytes(void);
uint64_t software_machine_cache_bytes(void);
uint32_t software_machine_cores(void); /**< That this process may use. */
bool software_machine_huge_pages(void);

/* ---------------------------------------------------------------- memory (memory.c) */

/** Memory of a device: one memfd. It lives while it has a handle, a mapping or a binding. */
struct software_allocation {
    struct software_allocation *next, *previous;
    int fd;
    uint64_t bytes;
    dev_t file_device; /**< With file: how an import recognises memory that is known here. */
    ino_t file;
    CUmemAllocationProp prop;
    bool foreign;         /**< Made by another process: not counted against our device. */
    uint32_t handle_uses; /**< Releases that are due. */
    uint32_t uses;        /**< Mappings and bindings. */
    CUmemGenericAllocationHandle handle; /**< 0 when handle_uses is 0. */
    char *view; /**< Our own mapping of all of it, for multicast; NULL when view_uses is 0. */
    uint32_t view_uses;
};

/** Drop a mapping or binding. memory_lock is held. */
void software_allocation_unuse(struct software_allocation *allocation);
/** Map all of it for ourselves, once for all users. memory_lock is held. */
CUresult software_allocation_view(struct software_allocation *allocation, char **ret_view);
void software_allocation_unview(struct software_allocation *allocation);
/** Free everything that callers leaked. */
void software_memory_free_all(void);
/** What an errno of a mapping or file call means to a caller of the driver. */
CUresult software_errno_result(int error);
/** Reserve address space. @return NULL when there is none. */
void *software_reserve(uint64_t bytes, uint64_t alignment, void *hint);

/* ---------------------------------------------------------------- ranges and pins (range.c) */

enum software_range_kind { SOFTWARE_RANGE_MEMORY, SOFTWARE_RANGE_MULTICAST, SOFTWARE_RANGE_HOST };

/** What is mapped at an address: device memory, a multicast object or pinned host memory. */
struct software_range {
    uint64_t address, bytes;
    enum software_range_kind kind;
    _Atomic uint64_t pin;
    uint64_t readable, writable; /**< Bit i: device i may. ranges_lock. */
    struct software_allocation *allocation;
    struct software_multicast *multicast;
};

/**
 * What a running command uses. A pin is a counter in a range or binding; whoever takes that away
 * closes it first and waits until it is free.
 */
struct software_pins {
    uint32_t count, capacity;
    _Atomic uint64_t **items;
    _Atomic uint64_t *few[16];
};
void software_pins_init(struct software_pins *pins);
/** Add one; false when memory is out. ranges_lock is held, for reading at least. */
bool software_pins_add(struct software_pins *pins, _Atomic uint64_t *pin);
/** Take all back and free the list. */
void software_pins_release(struct software_pins *pins);
/**
 * Close a pin, so that lookups miss what it guards, and wait until nobody holds it. memory_lock is
 * held and given up while waiting.
 * @return false when another thread is closing it already.
 */
bool software_pin_close(_Atomic uint64_t *pin);
bool software_pin_closed(_Atomic uint64_t *pin);

/**
 * Check that @p device may access every operand, and pin what they touch.
 * @return false, with nothing pinned, when one may not. Blocks: never.
 */
bool software_operands_pin(int device, const struct gpu_operand *operands, uint32_t count,
                           struct software_pins *pins);
/** As software_operands_pin() for one operand, without pins. */
bool software_operand_check(int device, const struct gpu_operand *operand);
/** Whether an address is one of ours (reserved, mapped or pinned), as against ordinary host memory.
 */
bool software_address_known(uint64_t address);
/** gpu_twin_services.resolve. */
bool software_resolve(void *context, uint64_t address, uint64_t bytes,
                      struct gpu_twin_members *ret);

/* ---------------------------------------------------------------- multicast (multicast.c) */

struct software_multicast;
/** Whether the object may be mapped: all of its devices were added. memory_lock is held. */
bool software_multicast_complete(const struct software_multicast *multicast);
bool software_multicast_has_device(const struct software_multicast *multicast, int device);
uint64_t software_multicast_bytes(const struct software_multicast *multicast);
/** Count a mapping, or drop one. memory_lock is held. */
void software_multicast_use(struct software_multicast *multicast);
void software_multicast_unuse(struct software_multicast *multicast);
/** cuMemRelease of one. memory_lock is held. */
void software_multicast_release(struct software_multicast *multicast);
/**
 * The members' memory at [offset, offset + bytes): every member must have one binding that holds
 * all of it. ranges_lock is held. @p pins, when not NULL, gets every binding.
 */
bool software_multicast_members(const struct software_multicast *multicast, uint64_t offset,
                                uint64_t bytes, struct gpu_twin_members *ret,
                                struct software_pins *pins);
/** Objects that exist. memory_lock is held. */
uint64_t software_multicast_count(void);
void software_multicast_free_all(void);

/* ---------------------------------------------------------------- address space (address.c,
 * host.c) */

/** Undo every mapping and reservation that callers leaked. */
void software_address_free_all(void);
/** Put a range into the table, or take it out. memory_lock is held. */
bool software_range_insert(struct software_range *range);
/** Close, wait for its users, take out. False when another thread does so already. */
bool software_range_remove(struct software_range *range);
void software_host_free(struct software_range *range);

/* ---------------------------------------------------------------- work (stream.c, event.c, pool.c,
 * launch.c, copy.c) */

/** What became of starting a command. */
enum software_start {
    SOFTWARE_START_DONE,    /**< Nothing more to do. */
    SOFTWARE_START_CHUNKS,  /**< chunk_count chunks are to be run. */
    SOFTWARE_START_WAITING, /**< Somebody will put the stream into the ready queue; start again
                               then. */
};

struct software_command;
struct software_record;
struct software_stream;

/** One kind of command. */
struct software_command_kind {
    /** By the thread that owns the stream at the moment, without locks. */
    enum software_start (*start)(struct software_command *command);
    void (*run)(const struct software_command *command, uint64_t chunk);
    bool survives_error; /**< Started even when the context has a sticky error. */
};

/** One piece of work in a stream. */
struct software_command {
    const struct software_command_kind *kind;
    struct software_command *next; /**< In the stream. */
    struct software_stream *stream;
    struct software_command *job_next; /**< In the pool's list of jobs. */
    uint64_t chunk_count, chunk_next;  /**< chunk_next: work_lock. */
    _Atomic uint64_t chunks_left;
    struct software_pins pins;
    union {
        struct {
            const struct gpu_twin *twin;
            const void *params; /**< Behind the struct when the command is queued. */
            bool delayed;       /**< The launch delay has passed. */
        } launch;
        struct {
            char *to;
            const char *from; /**< NULL: a fill. */
            uint64_t bytes;
            unsigned char value;
            bool check_to, check_from; /**< Operands of the device; else ordinary host memory. */
            bool streaming;
        } copy;
        struct software_record *record; /**< Record, wait. */
        struct {
            CUhostFn function;
            void *data;
        } host;
    } u;
};

struct software_stream {
    uint64_t handle;
    struct software_context *context;
    struct software_command *head, *tail; /**< head is the one that runs. work_lock. */
    bool busy;      /**< Owned by a thread, a job, a waiting list or the ready queue. work_lock. */
    bool destroyed; /**< Freed when it is no longer busy. work_lock. */
    _Atomic uint64_t submitted, completed; /**< Commands. Written under work_lock. */
    struct software_stream *list_next;     /**< In the ready queue or a record's waiters. */
    struct st_timer timer;                 /**< Launch delay. */
};

/** As software_enter(), and the stream: 400 when it is none, or its context's sticky error. */
CUresult software_enter_stream(CUstream handle, struct software_stream **ret_stream);
/**
 * Run a command, or queue a copy of it behind what the stream already has.
 * @param prototype   the caller's, on its stack; kind and u filled.
 * @param params_bytes bytes of u.launch.params to be copied, else 0.
 * @param small       it may run now, on this thread, when the stream is idle.
 * @return 0, or 2 when memory is out (nothing was queued).
 */
CUresult software_stream_submit(struct software_stream *stream, struct software_command *prototype,
                                size_t params_bytes, bool small);
/**
 * Start what the stream has, on this thread, which owns it: a thread of the pool (@p on_pool),
 * which runs several commands and single chunks, or the submitting one, which only starts the
 * first.
 */
void software_stream_advance(struct software_stream *stream, bool on_pool);
/** The last chunk of the head command is done: retire it and go on. The caller becomes the owner.
 */
void software_stream_chunks_done(struct software_stream *stream);
/** Wait until everything submitted so far is done. @return the context's error. */
CUresult software_stream_wait(struct software_stream *stream);
/** Wait until no stream has work. */
void software_streams_drain(void);
/** Destroy what a context, or any (NULL), has of each; for streams after their work is done. */
void software_streams_clear(struct software_context *context);
void software_events_clear(struct software_context *context);
void software_modules_clear(struct software_context *context);
void software_context_clear(struct software_context *context); /**< All three. */

/**
 * What cuLaunchKernel() and a kernel node ask of a launch, but for the stream.
 * @return 400 for a function that is none, 1 for what no device would launch.
 */
CUresult software_launch_check(const CUDA_KERNEL_NODE_PARAMS *launch,
                               const struct gpu_twin **ret_twin,
                               struct software_context **ret_context);
/** An event without timing, of a context that need not be the thread's. */
CUresult software_event_new(struct software_context *context, CUevent *ret_event);
/** Destroy all graphs that callers leaked. */
void software_graphs_free_all(void);

/** Tell the core that we spin. */
static inline void software_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/** Spin shortly, then sleep, until @p done says yes. Without locks. */
void software_work_wait(bool (*done)(void *arg), void *arg);
/** Wake those who wait. work_lock is held. */
void software_work_notify(void);

/** Threads that run streams' commands. */
ST_MUST_CHECK enum st_status software_pool_open(uint32_t threads, struct st_error *err);
void software_pool_close(void);
/** Put a stream into the ready queue. work_lock is held. */
void software_pool_ready(struct software_stream *stream);
/** Offer a command's chunks to the pool. Without locks. */
void software_pool_run(struct software_command *command);

/* ---------------------------------------------------------------- the entry points */

#define X(call, params, args) CUresult software_##call params;
GPU_DRIVER_CALLS(X)
#undef X

#endif
