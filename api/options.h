#ifndef SYMTENSOR_API_OPTIONS_H
#define SYMTENSOR_API_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "api/arena.h"
#include "base/error.h"
#include "base/log.h"
#include "server/server.h"

/**
 * Options of the server: one table, three sources. An option "--health-listen" is
 * SYMTENSOR_HEALTH_LISTEN in the environment and "health_listen" in the JSON file of --config; a
 * flag wins over the environment, and that over the file.
 */
struct api_options {
    const char *config;        /**< NULL: none. */
    const char *listen;        /**< NULL: no TCP. */
    const char *unix_socket;   /**< NULL: the default place; "off": none. */
    const char *health_listen; /**< "off": none. */
    const char *allowed_hosts; /**< NULL: only the default names. */
    const char *node_name;     /**< NULL: the host's. */
    bool insecure;
    enum gpu_driver_choice driver;
    enum gpu_nvls_mode nvls;
    enum gpu_graphs_mode graphs;
    enum st_log_level log_level;
    uint32_t software_devices;
    uint32_t nvls_slots;
    uint32_t drain_seconds;
    uint64_t software_memory_bytes;
    uint64_t device_memory_limit;
    bool deterministic;
    bool help, version;     /**< Asked for: print and end. */
    struct api_arena arena; /**< Holds text from the file. */
};

/**
 * Read all sources.
 * @param argv        [argc], the program's name first.
 * @param environment "NAME=value" texts, ending with NULL; must live as long as the options.
 * @param ret_options release with api_options_done(), also after a failure.
 * @retval ST_INVALID_ARGUMENT INVALID_OPTION: the field is the option as it was given (flag,
 * variable or key). Unknown SYMTENSOR_* variables are logged as warnings. Thread: start-up.
 */
ST_MUST_CHECK enum st_status api_options_read(int argc, const char *const *argv,
                                              const char *const *environment,
                                              struct api_options *ret_options,
                                              struct st_error *err);
void api_options_done(struct api_options *options);
/** Print the table. */
void api_options_help(FILE *file);

#endif
