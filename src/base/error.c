/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int grpc, http, exit;
} codes[ERR_CODE_COUNT] = {
    [ERR_NONE] = { "ok", 0, 200, 0 },
    [ERR_INVALID] = { "invalid", 3, 400, 2 },
    [ERR_NOT_FOUND] = { "not-found", 5, 404, 3 },
    [ERR_CONFLICT] = { "conflict", 9, 409, 4 },
    [ERR_UNAVAILABLE] = { "unavailable", 14, 503, 5 },
    [ERR_LIMIT] = { "limit", 8, 413, 6 },
    [ERR_DENIED] = { "denied", 7, 403, 7 },
    [ERR_UNSUPPORTED] = { "unsupported", 12, 501, 8 },
    [ERR_INTERNAL] = { "internal", 13, 500, 1 },
};

static const char *const cut_mark = "…";

/* Marks a text that did not fit, so that a reader knows that something is missing. Cuts at a
 * character, not inside one. */
static void mark_cut(char *text, size_t size)
{
    size_t at = size - 1 - strlen(cut_mark);
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    memcpy(text + at, cut_mark, strlen(cut_mark) + 1);
}

/* A failure always has a code: without one it is a defect of ours. */
static enum error_code failure(enum error_code code)
{
    return code > ERR_NONE && code < ERR_CODE_COUNT ? code : ERR_INTERNAL;
}

static void fill(struct error *err, enum error_code code, int sys, const char *fmt, va_list ap)
{
    err->code = code;
    err->sys = sys;
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    if (n < 0)
        err->text[0] = '\0';
    else if ((size_t)n >= sizeof err->text)
        mark_cut(err->text, sizeof err->text);
}

int error_set_(struct error *err, enum error_code code, int sys, const char *fmt, ...)
{
    code = failure(code);
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err, code, sys, fmt, ap);
        va_end(ap);
    }
    return -(int)code;
}

static enum error_code code_of_errno(int sys)
{
    switch (sys) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_DENIED;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EFBIG:
        return ERR_LIMIT;
    case EAGAIN:
    case EINTR:
    case ECONNREFUSED:
    case ETIMEDOUT:
        return ERR_UNAVAILABLE;
    case EEXIST:
    case EBUSY:
    case EADDRINUSE:
        return ERR_CONFLICT;
    default:
        return ERR_INTERNAL;
    }
}

int error_errno_(struct error *err, int sys, const char *fmt, ...)
{
    enum error_code code = code_of_errno(sys);
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err, code, sys, fmt, ap);
        va_end(ap);
        size_t used = strlen(err->text);
        int n = snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(sys));
        if (n < 0 || (size_t)n >= sizeof err->text - used)
            mark_cut(err->text, sizeof err->text);
    }
    return -(int)code;
}

int error_wrap_(struct error *err, const char *fmt, ...)
{
    if (!err)
        return -(int)ERR_INTERNAL;
    char inner[sizeof err->text];
    memcpy(inner, err->text, sizeof inner);
    enum error_code code = failure(err->code);
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, err->sys, fmt, ap);
    va_end(ap);
    size_t used = strlen(err->text);
    int n = snprintf(err->text + used, sizeof err->text - used, ": %s", inner);
    if (n < 0 || (size_t)n >= sizeof err->text - used)
        mark_cut(err->text, sizeof err->text);
    return -(int)code;
}

static enum error_code known(enum error_code code)
{
    return code < ERR_CODE_COUNT ? code : ERR_INTERNAL;
}

const char *error_code_name(enum error_code code)
{
    return codes[known(code)].name;
}

int error_grpc_status(enum error_code code)
{
    return codes[known(code)].grpc;
}

int error_http_status(enum error_code code)
{
    return codes[known(code)].http;
}

int error_exit_code(enum error_code code)
{
    return codes[known(code)].exit;
}
