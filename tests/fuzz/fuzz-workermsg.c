/* SPDX-License-Identifier: Apache-2.0 */
/* A packet on the worker's socket, and its body as each kind of message. */
#include "gpu/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct str packet = { (const char *)data, size };
    struct message m = { 0 };
    struct hello hello;
    struct start start;
    struct gpu_event event;
    struct survey *survey;
    if (message_parse(packet, &m, NULL) < 0 || m.flags & MESSAGE_LARGE)
        return 0;
    int r = hello_decode(m.body, &hello, NULL);
    r |= start_decode(m.body, &start, NULL);
    r |= event_decode(m.body, &event, NULL);
    (void)r;
    if (survey_decode(m.body, &survey, NULL) == 0)
        survey_unref(survey);
    return 0;
}
