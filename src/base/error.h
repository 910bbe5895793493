/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * src/base: what every other folder stands on: errors, findings, memory, text, log, option tables,
 * the host seam. Not here: anything that knows a protocol, a GPU or Kubernetes. may use: (nothing)
 */
#include <stdarg.h>
#include <stddef.h>

/* What kind of failure it was. One table (error.c) maps a code to gRPC status, HTTP status, exit
 * code and log level. */
enum error_code {
    ERR_NONE = 0,
    ERR_INVALID,     /* the input is wrong; trying again will not help */
    ERR_NOT_FOUND,   /* what was asked for does not exist */
    ERR_CONFLICT,    /* somebody else holds it */
    ERR_UNAVAILABLE, /* not now; trying again may help */
    ERR_LIMIT,       /* larger than we accept */
    ERR_DENIED,      /* not permitted */
    ERR_UNSUPPORTED, /* this driver, host or build cannot do it */
    ERR_INTERNAL,    /* a system call failed or we have a defect */
    ERR_CODE_COUNT,
};

/* Lives on the caller's stack; never allocated, never global. */
struct error {
    enum error_code code;
    int sys;        /* errno, nvmlReturn_t or HTTP status of the origin; 0 if none */
    char text[480]; /* outermost context first; cut at the end, always terminated */
};

#define must_check        __attribute__((warn_unused_result))
#define printf_like(f, a) __attribute__((format(printf, f, a)))

/* Fills *err (NULL allowed) and returns -code. When `sys` is an errno that the text should show,
 * write it with %m or name it. */
int error_set_(struct error *err, enum error_code code, int sys, const char *fmt, ...)
    printf_like(4, 5);

/* As error_set with an errno: appends ": <strerror(sys)>". Picks ERR_NOT_FOUND for ENOENT,
 * ERR_DENIED for EACCES/EPERM, ERR_LIMIT for ENOSPC/EDQUOT/EMFILE/ENFILE, ERR_UNAVAILABLE for
 * EAGAIN/EINTR/ECONNREFUSED/ETIMEDOUT, else ERR_INTERNAL. */
int error_errno_(struct error *err, int sys, const char *fmt, ...) printf_like(3, 4);

/* Puts "<context>: " before the text already there; returns -err->code (-ERR_INTERNAL when err is
 * NULL). */
int error_wrap_(struct error *err, const char *fmt, ...) printf_like(2, 3);

/* The compiler is told that these never return 0, so that it knows what a failed call leaves unset.
 */
#define error_negative_(call)                                                                      \
    ({                                                                                             \
        int error_r_ = (call);                                                                     \
        if (error_r_ >= 0)                                                                         \
            __builtin_unreachable();                                                               \
        error_r_;                                                                                  \
    })
#define error_set(...)   error_negative_(error_set_(__VA_ARGS__))
#define error_errno(...) error_negative_(error_errno_(__VA_ARGS__))
#define error_wrap(...)  error_negative_(error_wrap_(__VA_ARGS__))

/* Lower-case word of a code ("not-found"); never NULL. */
const char *error_code_name(enum error_code code);

/* gRPC status number (0..16), HTTP status and process exit code that stand for a code. */
int error_grpc_status(enum error_code code);
int error_http_status(enum error_code code);
int error_exit_code(enum error_code code);
