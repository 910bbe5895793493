/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Unix stream sockets by path, also by paths longer than sun_path (those go through a descriptor of
 * the directory and /proc). All descriptors are close-on-exec and do not block. */
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct unix_socket_id {
    dev_t dev;
    ino_t ino;
};

/* Accepts from the moment the name appears: bound and listening under a dot name of the same
 * directory, then renamed. A socket file that nobody answers on is replaced; one that answers, or
 * anything that is not a socket, is ERR_CONFLICT. mode 0: 0600. */
int unix_socket_listen(const char *path, mode_t mode, int *ret_fd, struct unix_socket_id *ret_id,
                       struct error *err) must_check;
/* ERR_NOT_FOUND: no such file; ERR_UNAVAILABLE with err->sys ECONNREFUSED: nobody listens, EAGAIN:
 * the listener's queue is full, try again soon. */
int unix_socket_connect(const char *path, int *ret_fd, struct error *err) must_check;

bool unix_socket_is(const char *path, const struct unix_socket_id *id); /* still that very file */
void unix_socket_unlink(const char *path, const struct unix_socket_id *id); /* only if it is */
