/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Inside src/spec only: the parts that pluginconfig_load is made of. */
#include "spec/decode.h"
#include "spec/pluginconfig.h"

#define RESOURCE_PREFIX "nvidia.com/"

/* spec/pluginconfig_file.c: walks the document; scalars of the option table go into `o`, the rest
 * into `c`. */
void config_decode_file(struct decode *d, const struct value *root, struct opts *o,
                        struct plugin_config *c);

/* spec/pluginconfig_sharing.c: sharing.timeSlicing or sharing.mps, and what both must obey. */
void config_decode_sharing(struct decode *d, const struct value *v, const char *path,
                           const char *const *paths, size_t n_paths, struct plugin_config *c);
void config_decode_patterns(struct decode *d, const struct value *v, const char *path,
                            const char *const *paths, size_t n_paths,
                            const struct resource_pattern **ret, size_t *ret_n);

/* spec/pluginconfig_device.c: one entry's `devices`, and gpus that two entries name. */
void config_decode_devices(struct decode *d, const struct value *v, const char *path,
                           struct shared_resource *e);
void config_check_overlap(struct decode *d, const char *path, const struct shared_resource *entries,
                          size_t n);

/* spec/pluginconfig_env.c: the two health variables; variables that hold a whole config. */
void config_decode_health(struct decode *d, char *const *env, struct plugin_config *c);
void config_find_stray(struct decode *d, char *const *env);
