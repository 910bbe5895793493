/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What agent and worker say to each other: SOCK_SEQPACKET messages of at most 64 KiB; a larger body
 * travels as a sealed memfd beside its header. Bytes: "MWP" and a digit, kind (16 bits), flags
 * (16), id (32), length of the body (32), the body.
 *
 *   agent  → START    version, build, watch events?, the last survey of an earlier worker
 *   worker → HELLO    version, build, which fences could not be had
 *   agent  → REQUEST  id: take a survey
 *   worker → SURVEY   the same id; flag RESTART when only a new worker can see more
 *   worker → EVENT    at any time
 *
 * Closing the socket ends the worker. The agent side treats every length, offset and text as
 * hostile.
 */
#include "base/buf.h"
#include "gpu/nvml.h"
#include "gpu/survey.h"
#include "gpu/worker.h"

enum {
    PROTOCOL_VERSION = 1,
    MESSAGE_MAX = 64 * 1024,
    MESSAGE_HEADER = 16,
    BUILD_ID_SIZE = 64,
    NOTES_SIZE = 480,
};

enum message_kind {
    MESSAGE_START = 1,
    MESSAGE_HELLO,
    MESSAGE_REQUEST,
    MESSAGE_SURVEY,
    MESSAGE_EVENT,
};

enum message_flag {
    MESSAGE_LARGE = 1,   /* the body is in the memfd */
    MESSAGE_RESTART = 2, /* taker_wants_restart */
};

struct message {
    enum message_kind kind;
    uint32_t flags, id;
    struct str body;
    char *memory; /* holds body */
};
void message_done(struct message *m);
#define auto_message __attribute__((cleanup(message_done))) struct message

/* Waits while the socket is full, unless it is non-blocking (ERR_UNAVAILABLE then). */
int message_send(int fd, enum message_kind kind, uint32_t flags, uint32_t id, struct str body,
                 struct error *err) must_check;
/* Did a send fail because nobody is at the other end any more? */
bool message_peer_gone(const struct error *err);
/* One message; 1, or 0 when the other side closed. Non-blocking and nothing there: ERR_UNAVAILABLE
 * with sys EAGAIN. Anything that breaks the rules above: ERR_INVALID or ERR_LIMIT. */
int message_receive(int fd, struct message *ret, struct error *err) must_check;
/* The header of a message. `bytes` is the whole packet; body is set unless it is large, then
 * body.n is what the memfd has to hold. */
int message_parse(struct str bytes, struct message *ret, struct error *err) must_check;

struct hello {
    uint32_t version;
    char build[BUILD_ID_SIZE];
    char notes[NOTES_SIZE]; /* fences that could not be had, "" when all hold */
};
void hello_encode(const struct hello *h, struct buf *out);
int hello_decode(struct str body, struct hello *ret, struct error *err) must_check;

struct start {
    uint32_t version;
    char build[BUILD_ID_SIZE];
    bool watch;
    struct str survey; /* of the body; n 0: none */
};
void start_encode(const struct start *s, struct buf *out);
int start_decode(struct str body, struct start *ret, struct error *err) must_check;

void event_encode(const struct gpu_event *e, struct buf *out);
int event_decode(struct str body, struct gpu_event *ret, struct error *err) must_check;

/* Version and, where the linker left one, the build id of this executable. */
void build_id(char ret[BUILD_ID_SIZE]);

/* Memory that both sides map: what the worker is doing. 0, or -code; *ret_fd is sealed against a
 * change of size. */
int progress_new(int *ret_fd, struct nvml_progress **ret, struct error *err) must_check;
struct nvml_progress *progress_map(int fd); /* NULL: not of that size, or not to be had */
void progress_free(struct nvml_progress *p);
