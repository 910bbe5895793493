/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* agent.sock: the holder's side (standby_serve.c) and what both sides know of the protocol. */
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/standby.h"
#include "base/str.h"

enum request { REQUEST_LEAVE, REQUEST_STATUS, REQUEST_RELEASE, REQUEST_ACQUIRE, REQUEST_SURVEY };

struct serve;
/* Listens in the directory; handle() answers into `out`, or fails. After a REQUEST_LEAVE the
 * connection stays open until serve_free, so that its end tells the successor. */
int serve_new(struct loop *l, int dirfd,
              int (*handle)(void *arg, enum request what, struct buf *out, struct error *err),
              void *arg, struct serve **ret, struct error *err) must_check;
void serve_free(struct serve *s); /* NULL allowed; removes the socket while it is ours */

/* A line without its end; ERR_INVALID names what is allowed. */
int request_parse(struct str line, enum request *ret, struct error *err) must_check;

/* The address of `name` in a directory, however long the directory's path is. */
struct sockaddr_un socket_address(int dirfd, const char *name);
/* Connects without waiting; *ret_fd is non-blocking. */
int socket_connect(int dirfd, int *ret_fd, struct error *err) must_check;

/* "ok N\n" or "error CODE N\n" at the start of `in`. 0: not whole yet; 1: *ret_n bytes follow after
 * *ret_head; -code: no such line. */
int answer_parse(struct str in, enum error_code *ret_code, size_t *ret_head, size_t *ret_n,
                 struct error *err) must_check;
