/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Kubelet's messages as nanopb structs (pb/, made by tools/regen-proto.sh), read within a limit and
 * freed at the end of a scope:
 *
 *     auto_pb(dp_AllocateRequest) req = dp_AllocateRequest_init_zero;
 *     int r = pbmsg_read(dp_AllocateRequest, bytes, GRPC_MESSAGE_MAX, &req, err);
 *
 * A list in such a struct holds at most 65 534 elements: long lists (devices) are read with
 * pbreader.h and written with pbwriter.h, which copy nothing.
 */
#include <pb_decode.h>
#include <pb_encode.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "wire/pb/deviceplugin.pb.h"
#include "wire/pb/dra.pb.h"
#include "wire/pb/pluginregistration.pb.h"
#include "wire/pb/podresources.pb.h"

/* Decodes into *msg (any content before is overwritten, not freed). ERR_LIMIT past `max` bytes or
 * without memory, ERR_INVALID for bytes that are not such a message; on failure *msg is empty.
 * Strings are terminated; absent strings are NULL, see pbmsg_text. */
#define pbmsg_read(type, bytes, max, msg, err)                                                     \
    pbmsg_read_as(type##_fields, #type, bytes, max, 1 ? (msg) : (type *)NULL, err)
int pbmsg_read_as(const pb_msgdesc_t *fields, const char *name, struct str bytes, size_t max,
                  void *msg, struct error *err) must_check;

/* Appends the encoded message. ERR_LIMIT when it does not fit the buffer. */
#define pbmsg_add(type, msg, out, err)                                                             \
    pbmsg_add_as(type##_fields, #type, 1 ? (msg) : (const type *)NULL, out, err)
int pbmsg_add_as(const pb_msgdesc_t *fields, const char *name, const void *msg, struct buf *out,
                 struct error *err) must_check;

/* A string of a message: proto3 does not tell absent from empty. */
static inline const char *pbmsg_text(const char *s)
{
    return s ? s : "";
}

#define auto_pb(type) __attribute__((cleanup(type##_done))) type

#define PBMSG_DONE(type)                                                                           \
    static inline void type##_done(type *msg)                                                      \
    {                                                                                              \
        pb_release(type##_fields, msg);                                                            \
    }
PBMSG_DONE(dp_Options)
PBMSG_DONE(dp_RegisterRequest)
PBMSG_DONE(dp_Device)
PBMSG_DONE(dp_ListAndWatchResponse)
PBMSG_DONE(dp_PreStartContainerRequest)
PBMSG_DONE(dp_PreferredAllocationRequest)
PBMSG_DONE(dp_PreferredAllocationResponse)
PBMSG_DONE(dp_AllocateRequest)
PBMSG_DONE(dp_AllocateResponse)
PBMSG_DONE(plugreg_PluginInfo)
PBMSG_DONE(plugreg_RegistrationStatus)
PBMSG_DONE(dra_NodePrepareResourcesRequest)
PBMSG_DONE(dra_NodePrepareResourcesResponse)
PBMSG_DONE(dra_NodeUnprepareResourcesRequest)
PBMSG_DONE(dra_NodeUnprepareResourcesResponse)
PBMSG_DONE(podres_ListResponse)
PBMSG_DONE(podres_AllocatableResponse)
PBMSG_DONE(podres_GetRequest)
PBMSG_DONE(podres_GetResponse)
