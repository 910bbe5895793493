/* SPDX-License-Identifier: Apache-2.0 */
/* A survey as a hostile worker could send it. What is accepted must come out the same again. */
#include <stdlib.h>

#include "gpu/survey.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct survey *s, *again;
    if (survey_decode((struct str){ (const char *)data, size }, &s, NULL) < 0)
        return 0;
    auto_buf bytes;
    buf_init(&bytes, SURVEY_BYTES_MAX);
    if (survey_encode(s, &bytes, NULL) < 0 ||
        !str_eq(buf_view(&bytes), (struct str){ (const char *)data, size }) ||
        survey_decode(buf_view(&bytes), &again, NULL) < 0)
        abort();
    survey_unref(again);
    survey_unref(s);
    return 0;
}
