#ifndef SYMTENSOR_API_DATA_DATA_H
#define SYMTENSOR_API_DATA_DATA_H

#include "api/request.h"
#include "server/server.h"

/** Inside api/data/: what downloads and uploads of a shard share. */

/** The forms of a body; also the index into the media types of both directions. */
enum data_form { DATA_RAW, DATA_NPY, DATA_JSON };
extern const char *const data_media[]; /**< By form, ends with NULL. */

/** Query of GET. */
struct data_get_query {
    bool has_offset, has_count;
    uint64_t offset;
    uint32_t count;
    bool allow_undefined;
};

/** Query of PUT. */
struct data_put_query {
    bool has_offset;
    uint64_t offset;
    uint64_t expected_generation;
};

/**
 * Find the tensor and the rank that the path names.
 * @param ret_tensor a snapshot to release.
 */
ST_MUST_CHECK enum st_status data_shard_find(struct api_request *request,
                                             struct server_transfer_request *transfer,
                                             struct server_tensor **ret_tensor,
                                             struct st_error *err);

/** ABORTED when the tensor that a transfer was opened on is not the one that was looked at before.
 */
ST_MUST_CHECK enum st_status data_same_tensor(const struct server_tensor *seen,
                                              const struct server_tensor *opened,
                                              struct st_error *err);

/** In the place of an entity tag that there is none: equal to none of a header. */
#define DATA_ETAG_NONE "none"

/** ETag of a tensor's contents: their generation and the begin of its uid. */
void data_etag_set(struct api_request *request, const struct server_tensor *tensor,
                   uint64_t generation);

enum st_status data_get(struct api_request *request, struct st_error *err); /**< download.c */
enum st_status data_put(struct api_request *request, struct st_error *err); /**< upload.c */

#endif
