#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/client/symtensor.h"

#define CONNECT_SECONDS 10L

struct symtensor_client {
    CURL *curl;
    char *unix_socket; /* NULL: by URL */
    char *url;         /* "http://localhost" for a socket */
    long timeout_seconds;
};

/* Where a reply's body goes: memory, or a file once the code is known to be a success. */
struct sink {
    struct symtensor_client *client;
    struct symtensor_reply *reply;
    FILE *file;
    size_t capacity;
};

static char *default_socket(void)
{
    const char *named = getenv("SYMTENSOR_UNIX_SOCKET");
    if (named && *named) {
        return strdup(named);
    }
    static const char system_path[] = "/run/symtensor/symtensord.sock";
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char *path = NULL;
    if (access(system_path, F_OK) == 0 || !runtime || !*runtime) {
        return strdup(system_path);
    }
    return asprintf(&path, "%s/symtensor/symtensord.sock", runtime) < 0 ? NULL : path;
}

static int choose_address(struct symtensor_client *client, const struct symtensor_options *options)
{
    const char *url = options ? options->url : NULL;
    const char *path = options ? options->unix_socket : NULL;
    if (!url && !path) {
        url = getenv("SYMTENSOR_URL");
    }
    if (url && *url) {
        client->url = strdup(url);
        return client->url ? 0 : -1;
    }
    client->unix_socket = path ? strdup(path) : default_socket();
    client->url = strdup("http://localhost");
    return client->unix_socket && client->url ? 0 : -1;
}

struct symtensor_client *symtensor_open(const struct symtensor_options *options)
{
    struct symtensor_client *client = calloc(1, sizeof(*client));
    if (!client) {
        return NULL;
    }
    client->timeout_seconds = options ? options->timeout_seconds : 0;
    client->curl = curl_easy_init();
    if (!client->curl || choose_address(client, options) != 0) {
        symtensor_close(client);
        return NULL;
    }
    return client;
}

void symtensor_close(struct symtensor_client *client)
{
    if (!client) {
        return;
    }
    if (client->curl) {
        curl_easy_cleanup(client->curl);
    }
    free(client->unix_socket);
    free(client->url);
    free(client);
}

static size_t keep_in_memory(struct sink *sink, const char *data, size_t bytes)
{
    struct symtensor_reply *reply = sink->reply;
    size_t needed = reply->body_bytes + bytes + 1;
    if (needed > sink->capacity) {
        size_t capacity = needed * 2;
        char *body = realloc(reply->body, capacity);
        if (!body) {
            return 0;
        }
        reply->body = body;
        sink->capacity = capacity;
    }
    memcpy(reply->body + reply->body_bytes, data, bytes);
    reply->body_bytes += bytes;
    reply->body[reply->body_bytes] = '\0';
    return bytes;
}

static size_t take_body(char *data, size_t size, size_t count, void *arg)
{
    struct sink *sink = arg;
    long code = 0;
    curl_easy_getinfo(sink->client->curl, CURLINFO_RESPONSE_CODE, &code);
    if (sink->file && code >= 200 && code < 300) {
        return fwrite(data, size, count, sink->file) * size;
    }
    return keep_in_memory(sink, data, size * count);
}

/* Why nobody answers on a Unix socket, and what to do about it. */
static const struct refusal {
    long code; /* of connect() */
    const char *why;
    bool start; /* a server would help */
} refusals[] = {
    {ENOENT, "there is no such socket", true},
    {ENOTDIR, "there is no such socket", true},
    {ECONNREFUSED, "no server listens on this socket", true},
    {EACCES, "no permission: the socket is for its server's user, root and the socket's group",
     false},
    {EPERM, "no permission: the socket is for its server's user, root and the socket's group",
     false},
};

/* curl says "localhost port 80" of a socket: name the path and the reason instead. */
static bool explain_socket(struct symtensor_client *client, struct symtensor_reply *reply)
{
    long code = 0;
    curl_easy_getinfo(client->curl, CURLINFO_OS_ERRNO, &code);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (refusals[i].code == code) {
            snprintf(reply->error, sizeof(reply->error), "%s: %s%s%s", client->unix_socket,
                     refusals[i].why,
                     refusals[i].start ? "; start a server with: symtensord --unix-socket " : "",
                     refusals[i].start ? client->unix_socket : "");
            return true;
        }
    }
    return false;
}

static void explain(struct symtensor_client *client, CURLcode code, const char *reason,
                    struct symtensor_reply *reply)
{
    if (code == CURLE_COULDNT_CONNECT && client->unix_socket && explain_socket(client, reply)) {
        return;
    }
    snprintf(reply->error, sizeof(reply->error), "%s: %s",
             client->unix_socket ? client->unix_socket : client->url,
             *reason ? reason : curl_easy_strerror(code));
}

static int perform(struct symtensor_client *client, const char *path, struct curl_slist *headers,
                   struct sink *sink)
{
    char *url = NULL;
    if (asprintf(&url, "%s%s", client->url, path) < 0) {
        snprintf(sink->reply->error, sizeof(sink->reply->error), "out of memory");
        curl_slist_free_all(headers);
        return -1;
    }
    CURL *curl = client->curl;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    if (client->unix_socket) {
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->unix_socket);
    }
    char reason[CURL_ERROR_SIZE] = "";
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, client->timeout_seconds);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, sink);
    CURLcode code = curl_easy_perform(curl);
    if (code == CURLE_OK) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &sink->reply->http_code);
    } else {
        explain(client, code, reason, sink->reply);
    }
    /* Options are reset, the connection stays open for the next request. */
    curl_easy_reset(curl);
    curl_slist_free_all(headers);
    free(url);
    return code == CURLE_OK ? 0 : -1;
}

int symtensor_call(struct symtensor_client *client, const char *method, const char *path,
                   const char *json, struct symtensor_reply *ret_reply)
{
    *ret_reply = (struct symtensor_reply){0};
    struct sink sink = {.client = client, .reply = ret_reply};
    struct curl_slist *headers = NULL;
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    if (json) {
        headers = curl_slist_append(headers, "Content-Type: application/json");
        headers = curl_slist_append(headers, "Expect:");
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, json);
    } else if (strcmp(method, "GET") != 0) {
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, "");
        headers = curl_slist_append(headers, "Content-Type:");
    }
    return perform(client, path, headers, &sink);
}

int symtensor_put(struct symtensor_client *client, const char *path, const char *content_type,
                  FILE *file, uint64_t bytes, struct symtensor_reply *ret_reply)
{
    *ret_reply = (struct symtensor_reply){0};
    struct sink sink = {.client = client, .reply = ret_reply};
    char header[128];
    snprintf(header, sizeof(header), "Content-Type: %s",
             content_type ? content_type : "application/octet-stream");
    struct curl_slist *headers = curl_slist_append(NULL, header);
    curl_easy_setopt(client->curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(client->curl, CURLOPT_READDATA, file);
    if (bytes != SYMTENSOR_BYTES_UNKNOWN) {
        curl_easy_setopt(client->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)bytes);
    }
    return perform(client, path, headers, &sink);
}

int symtensor_get(struct symtensor_client *client, const char *path, const char *accept, FILE *file,
                  struct symtensor_reply *ret_reply)
{
    *ret_reply = (struct symtensor_reply){0};
    struct sink sink = {.client = client, .reply = ret_reply, .file = file};
    char header[128];
    snprintf(header, sizeof(header), "Accept: %s", accept ? accept : "application/octet-stream");
    return perform(client, path, curl_slist_append(NULL, header), &sink);
}

void symtensor_reply_done(struct symtensor_reply *reply)
{
    free(reply->body);
    *reply = (struct symtensor_reply){0};
}
