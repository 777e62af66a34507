#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The limit for requests over HTTP: libmicrohttpd with one epoll thread that answers every request,
 * with or without a body, with the same prepared reply. usage: bare_mhd PORT < FILE, where FILE
 * holds header lines, an empty line, and the body: what the server under test sent.
 */

#define REPLY_BYTES_MAX (1u << 20)

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **context)
{
    static int seen;
    (void)url;
    (void)method;
    (void)version;
    (void)upload;
    if (!*context) {
        *context = &seen; /* a reply in the first call would close the connection */
        return MHD_YES;
    }
    if (*upload_bytes) {
        *upload_bytes = 0; /* a part of the body: taken, and no reply before its end */
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, cls);
}

/** Make the reply from the text of one. Headers that the library makes itself are left out. */
static struct MHD_Response *make_response(char *text, size_t length)
{
    char *body = strstr(text, "\r\n\r\n");
    if (!body) {
        return NULL;
    }
    size_t body_length = length - (size_t)(body + 4 - text);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body_length, body + 4, MHD_RESPMEM_MUST_COPY);
    *body = '\0';
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line && response; line = strsep(&rest, "\n")) {
        char *colon = strchr(line, ':');
        line[strcspn(line, "\r")] = '\0';
        if (colon && strncmp(line, "Date", 4) != 0 && strncmp(line, "Content-Length", 14) != 0) {
            *colon = '\0';
            MHD_add_response_header(response, line, colon + 2);
        }
    }
    return response;
}

int main(int argc, char **argv)
{
    static char text[REPLY_BYTES_MAX];
    size_t length = fread(text, 1, sizeof(text) - 1, stdin);
    struct MHD_Response *response = make_response(text, length);
    if (argc != 2 || !response) {
        fprintf(stderr, "usage: bare_mhd PORT < reply\n");
        return 2;
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, (uint16_t)atoi(argv[1]), NULL, NULL, handle,
                         response, MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "bare_mhd: cannot listen\n");
        return 1;
    }
    int number;
    sigwait(&signals, &number);
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return 0;
}
