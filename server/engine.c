#include <stdio.h>
#include <string.h>

#include "server/internal.h"

void server_copy_text(char *field, size_t size, const char *text)
{
    size_t length = strnlen(text ? text : "", size - 1);
    memcpy(field, text ? text : "", length);
    field[length] = '\0';
}

/** Take the lock as the next one: those that come later wait at the gate. */
static void lock_in_turn(struct server *server)
{
    pthread_mutex_lock(&server->gate);
    pthread_mutex_lock(&server->lock);
    pthread_mutex_unlock(&server->gate);
}

void server_lock(struct server *server)
{
    if (pthread_mutex_trylock(&server->lock) != 0) {
        lock_in_turn(server);
    }
}

void server_breathe(struct server *server)
{
    /* A mutex alone would mostly come back to this thread: who waits has to wake up first. */
    pthread_mutex_unlock(&server->lock);
    lock_in_turn(server);
}

void server_unlock(struct server *server)
{
    struct server_after *after = server->after_first;
    server->after_first = NULL;
    server->after_last = NULL;
    if (!after) {
        pthread_mutex_unlock(&server->lock);
        return;
    }
    server->telling++; /* the node must not go meanwhile */
    pthread_mutex_unlock(&server->lock);
    while (after) {
        struct server_after *next = after->next; /* the call may free it */
        after->call(after);
        after = next;
    }
    pthread_mutex_lock(&server->lock);
    server->telling--;
    pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

void server_after(struct server *server, struct server_after *after)
{
    after->next = NULL;
    if (server->after_last) {
        server->after_last->next = after;
    } else {
        server->after_first = after;
    }
    server->after_last = after;
}

bool server_holder_enter(struct server_holder *holder)
{
    return order_enter(&holder->order);
}

static void granted_append(struct server *server, struct order_holder *list)
{
    if (!list) {
        return;
    }
    if (server->granted_last) {
        server->granted_last->next = list;
    } else {
        server->granted_first = list;
    }
    while (list->next) {
        list = list->next;
    }
    server->granted_last = list;
}

void server_holder_leave(struct server_holder *holder)
{
    struct server *server = holder->server;
    granted_append(server, order_leave(&holder->order));
    if (server->granting) {
        return; /* somebody below us on this stack goes on with the list */
    }
    server->granting = true;
    while (server->granted_first) {
        struct order_holder *first = server->granted_first;
        server->granted_first = first->next;
        if (!first->next) {
            server->granted_last = NULL;
        }
        struct server_holder *told = (struct server_holder *)first; /* its first member */
        told->granted(told);
    }
    server->granting = false;
}
