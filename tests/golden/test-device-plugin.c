/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded runs of the peer's device plugin, on an equal host made by hand: same lists, same
 * registration, same answers, same refusals. What differs is listed below and explained under the
 * same name in docs/differences.md; an entry that no run needs is an error too.
 *
 * usage: test-device-plugin RECORDINGS DIFFERENCES.md */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer_text.h"
#include "base/file.h"
#include "base/mem.h"
#include "cdi/cdi.h"
#include "data/json.h"
#include "driver_tree.h"
#include "kubelet/plugin_answer.h"

enum { FILE_MAX = 4 * 1024 * 1024, ANSWER_MAX = 4 * 1024 * 1024, IDS_LIMIT = 1024 };

static const char rpc_error[] = "rpc error: code = Unknown desc = ";

/* ---- listed differences ---- */

struct difference {
    const char *name;    /* in docs/differences.md */
    const char *variant; /* pattern over "PROFILE/VARIANT STEP" */
    const char *ours;    /* refusals: how our text begins; "": no particular one */
    bool seen;
};

static struct difference differences[] = {
    { "same-device-two-containers", "h200/* edge two containers",
      "invalid allocation request for \"nvidia.com/gpu\": invalid request: device "
      "GPU-11111111-2222-3333-4444-555555555555 is asked for by two containers" },
    { "preferred-unknown-shared", "*/ts* edge preferred unknown must",
      "error getting list of preferred allocation devices: unable to retrieve list of required "
      "devices: no device with uuid: GPU-no-such" },
    { "preferred-unknown-shared", "*/mps* edge preferred unknown must",
      "error getting list of preferred allocation devices: unable to retrieve list of required "
      "devices: no device with uuid: GPU-no-such" },
    { "refusal-says-more", "*/*gt-one *", "" },
    { "refusal-says-more", "*/mps4 *", "" },
    { "mig-mixed-empty", "h100-mig/mig-mixed-on-empty failure", "" },
    { "mig-single-empty-says-more", "h100-mig/mig-single-on-empty failure", "" },
    { "imex-required-says-more", "*/imex0-required-absent failure", "" },
    { "cdi-version", "*/* cdi version gpu", "" },
    { "cdi-more-names", "*/* cdi names gpu", "" },
};

static struct difference *allowed(const char *name, const char *where)
{
    for (size_t i = 0; i < ARRAY_LEN(differences); i++) {
        struct difference *d = &differences[i];
        if (strcmp(d->name, name) == 0 && str_glob(str_of(d->variant), str_of(where)))
            return d;
    }
    return NULL;
}

static struct difference *allowed_at(const char *where)
{
    for (size_t i = 0; i < ARRAY_LEN(differences); i++) {
        if (str_glob(str_of(differences[i].variant), str_of(where)))
            return &differences[i];
    }
    return NULL;
}

/* ---- one run ---- */

struct run {
    char where[300]; /* "a100/ts4 edge no devices" */
    size_t where_n;  /* of the part before the step */
    struct arena arena;
    const struct value *recorded;
    struct opts opts;
    struct plugin_config *config;
    struct survey *survey;
    struct fixture_host host;
    struct inventory *inv;
    struct cdi_facts facts;
    struct plugin_context context;
    struct error failure; /* text "": there was none */
};

static const char *step(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *step(struct run *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->where + r->where_n, sizeof(r->where) - r->where_n, fmt, ap);
    va_end(ap);
    return r->where;
}

/* What a difference is allowed to be: found, or the test fails here. */
static void differs(struct run *r, const char *name, const char *ours, const char *theirs)
{
    struct difference *d = name ? allowed(name, r->where) : allowed_at(r->where);
    if (!d || strncmp(ours, d->ours, strlen(d->ours)) != 0)
        fail_msg("%s%s%s\n ours:   %s\n theirs: %s", r->where, name ? " " : "", name ? name : "",
                 ours, theirs);
    d->seen = true;
}

static const struct opt table[] = { PLUGINCONFIG_OPTIONS, { .name = NULL } };

static char **texts_of(struct run *r, const struct value *list, const char *first)
{
    size_t n = list ? list->n : 0, at = 0;
    char **texts = arena_array(&r->arena, n + 2, sizeof(*texts));
    if (first)
        texts[at++] = arena_strdup(&r->arena, str_of(first));
    for (size_t i = 0; i < n; i++)
        texts[at++] = arena_strdup(&r->arena, list->items[i].text);
    return texts;
}

static bool has_text(const struct value *list, const char *text)
{
    for (size_t i = 0; list && i < list->n; i++) {
        if (str_is(list->items[i].text, text))
            return true;
    }
    return false;
}

static void load_config(struct run *r)
{
    struct error err;
    const struct value *flags = value_get(r->recorded, "flags");
    char **argv = texts_of(r, flags, "nvidia-device-plugin");
    char **env = texts_of(r, value_get(r->recorded, "env"), NULL);
    const struct value *config = value_get(r->recorded, "config");
    auto_arena notes;
    struct findings findings;
    arena_init(&notes, FILE_MAX);
    findings_init(&findings, &notes, 100);
    if (opts_parse(&r->opts, table, (int)(flags ? flags->n : 0) + 1, argv, env, 0, &err) < 0)
        fail_msg("%s: %s", r->where, err.text);
    if (pluginconfig_load(&r->opts, config ? &config->text : NULL, env, &findings, &r->config,
                          &err) < 0)
        fail_msg("%s: %s: %s", r->where, err.text, findings.n ? findings.items[0].cause : "");
}

static void make_host(struct run *r)
{
    bool h200 = str_starts(str_of(r->where), "h200");
    int nodes = h200 ? 0 : FIXTURE_DRIVER_NODES | FIXTURE_MODESET | FIXTURE_IMEX;
    if (has_text(value_get(r->recorded, "env"), "NS_DEV=1"))
        nodes |= FIXTURE_DEV_NODES;
    r->survey = fixture_survey(value_text(value_get(r->recorded, "profile"), ""));
    fixture_host_init(&r->host, r->survey, nodes, r->config->driver_root,
                      r->config->driver_root_ctr_path, r->config->dev_root);
    if (h200)
        driver_tree_h200(&r->host, "/opt/driver");
    else
        driver_tree_mock(&r->host);
}

/* What keeps the peer from starting is kept as r->failure. */
static void start(struct run *r)
{
    const struct inventory_input in = { .survey = r->survey, .config = r->config };
    int rc = inventory_build(&in, &r->inv, &r->failure);
    if (rc == 0)
        rc = cdi_look(&r->host.host, r->config, &r->facts, &r->failure);
    if (rc == 0)
        r->failure.text[0] = '\0';
    r->context = (struct plugin_context){
        .host = &r->host.host,
        .inv = r->inv,
        .config = r->config,
        .control_nodes = r->facts.control_nodes,
        .n_control_nodes = r->facts.n_control_nodes,
        .imex_channel0 = r->facts.imex_channel0,
        .gated = r->facts.gated,
    };
}

/* ---- comparing ---- */

/* With the index strategy the peer's order is random. */
static void sort_list(struct str list, char sep, struct buf *out)
{
    auto_buf lines;
    buf_init(&lines, FILE_MAX);
    while (list.p) {
        buf_str(&lines, str_cut(&list, sep));
        buf_ch(&lines, '\n');
    }
    sort_lines(&lines);
    for (size_t i = 0; i + 1 < lines.n; i++)
        buf_ch(out, lines.p[i] == '\n' ? sep : lines.p[i]);
}

static void normalize(const struct run *r, struct buf *text)
{
    auto_buf out;
    struct str rest = buf_view(text);
    buf_init(&out, FILE_MAX);
    if (r->config->id_strategy != ID_INDEX)
        return;
    while (rest.n > 0) {
        struct str line = str_cut(&rest, '\n');
        struct str value = line, key = str_cut(&value, '=');
        buf_str(&out, key);
        if (value.p) {
            buf_ch(&out, '=');
            sort_list(value, ',', &out);
        }
        buf_ch(&out, '\n');
    }
    buf_reset(text);
    buf_str(text, buf_view(&out));
}

static void compare(struct run *r, struct buf *ours, struct buf *theirs)
{
    normalize(r, ours);
    normalize(r, theirs);
    if (!str_eq(buf_view(ours), buf_view(theirs)))
        differs(r, NULL, ours->n ? ours->p : "", theirs->n ? theirs->p : "");
}

/* ---- recorded messages as text ---- */

static const char *text_of(const struct value *map, const char *key)
{
    return value_text(value_get(map, key), "");
}

static void recorded_pairs(const struct value *map, const char *what, struct buf *out)
{
    for (size_t i = 0; map && i < map->n; i++) {
        const struct member *m = &map->members[i];
        bool random = strcmp(what, "annotation") == 0;
        struct str key = m->key;
        if (random && str_ends(key, "RANDOM-UUID"))
            key.n -= strlen("RANDOM-UUID");
        else if (random)
            key.n -= 36;
        buf_fmt(out, "%s %.*s%s=%.*s\n", what, STR_FMT(key), random ? "RANDOM-UUID" : "",
                STR_FMT(m->value.text));
    }
}

static void recorded_container(const struct value *c, struct buf *out)
{
    auto_buf lines;
    buf_init(&lines, FILE_MAX);
    recorded_pairs(value_get(c, "envs"), "env", &lines);
    recorded_pairs(value_get(c, "annotations"), "annotation", &lines);
    const struct value *list = value_get(c, "mounts");
    for (size_t i = 0; list && i < list->n; i++)
        buf_fmt(&lines, "mount %s<%s\n", text_of(&list->items[i], "container_path"),
                text_of(&list->items[i], "host_path"));
    list = value_get(c, "devices");
    for (size_t i = 0; list && i < list->n; i++)
        buf_fmt(&lines, "node %s<%s %s\n", text_of(&list->items[i], "container_path"),
                text_of(&list->items[i], "host_path"), text_of(&list->items[i], "permissions"));
    list = value_get(c, "cdi_devices");
    for (size_t i = 0; list && i < list->n; i++)
        buf_fmt(&lines, "cdi %s\n", text_of(&list->items[i], "name"));
    sort_lines(&lines);
    buf_str(out, buf_view(&lines));
}

static void recorded_answer(const struct value *response, struct buf *out)
{
    const struct value *list = value_get(response, "container_responses");
    for (size_t i = 0; list && i < list->n; i++) {
        buf_fmt(out, "container %zu\n", i);
        recorded_container(&list->items[i], out);
    }
}

static void recorded_list(const struct value *list, struct buf *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct value *d = &list->items[i];
        const struct value *nodes = value_get(value_get(d, "topology"), "nodes");
        buf_fmt(out, "%s %s", text_of(d, "ID"), text_of(d, "health"));
        for (size_t k = 0; nodes && k < nodes->n; k++)
            buf_fmt(out, " numa %s", value_text(value_get(&nodes->items[k], "ID"), "0"));
        buf_ch(out, '\n');
    }
    sort_lines(out);
}

/* ---- steps ---- */

static const char **ids_of(struct run *r, const struct value *list)
{
    size_t n = list && list->kind == VALUE_LIST ? list->n : 0;
    const char **ids = arena_array(&r->arena, n + 1, sizeof(*ids));
    for (size_t i = 0; i < n; i++)
        ids[i] = list->items[i].text.p;
    return ids;
}

static void check_refusal(struct run *r, const struct value *recorded, int rc,
                          const struct error *err)
{
    const char *theirs = text_of(recorded, "error");
    if (rc == 0)
        fail_msg("%s: the peer refuses: %s", r->where, theirs);
    assert_true(str_starts(str_of(theirs), rpc_error));
    theirs += strlen(rpc_error);
    if (strcmp(err->text, theirs) == 0)
        return;
    if (!str_starts(str_of(err->text), theirs))
        fail_msg("%s\n ours:   %s\n theirs: %s", r->where, err->text, theirs);
    differs(r, "refusal-says-more", err->text, theirs);
}

static void check_allocate(struct run *r, const struct resource *res, const struct value *recorded)
{
    const struct value *containers =
        value_get(value_get(recorded, "request"), "container_requests");
    const char *const *lists[16];
    size_t n = containers ? containers->n : 0;
    for (size_t i = 0; i < n; i++)
        lists[i] = ids_of(r, value_get(&containers->items[i], "devices_ids"));

    auto_buf request, answer, ours, theirs;
    struct error err;
    buf_init(&request, ANSWER_MAX);
    buf_init(&answer, ANSWER_MAX);
    buf_init(&ours, FILE_MAX);
    buf_init(&theirs, FILE_MAX);
    allocate_request(&request, lists, n);
    int rc = plugin_allocate(&r->context, res, buf_view(&request), &answer, &err);
    if (value_get(recorded, "error")) {
        check_refusal(r, recorded, rc, &err);
        return;
    }
    recorded_answer(value_get(recorded, "response"), &theirs);
    if (rc < 0) {
        differs(r, NULL, err.text, theirs.p);
        return;
    }
    answer_text(buf_view(&answer), &ours);
    compare(r, &ours, &theirs);
}

/* Under sharing the peer's choice is random among equals: how many shares of each gpu, sorted. */
static void counts_per_gpu(struct buf *ids)
{
    auto_buf counts;
    buf_init(&counts, FILE_MAX);
    sort_lines(ids);
    struct str rest = buf_view(ids), last = { NULL, 0 };
    size_t n = 0;
    do {
        struct str line = str_cut(&rest, '\n');
        const char *colons = line.n ? memmem(line.p, line.n, "::", 2) : NULL;
        struct str base = { line.p, colons ? (size_t)(colons - line.p) : line.n };
        if (n > 0 && !str_eq(base, last)) {
            buf_fmt(&counts, "%zu\n", n);
            n = 0;
        }
        last = base;
        n += base.n > 0;
    } while (rest.n > 0 || n > 0);
    sort_lines(&counts);
    buf_reset(ids);
    buf_str(ids, buf_view(&counts));
}

static void check_preferred(struct run *r, const struct resource *res, const struct value *recorded)
{
    const struct value *must_list = value_get(recorded, "must");
    const char **must = ids_of(r, must_list);
    const char *available[IDS_LIMIT];
    size_t n_must = must_list && must_list->kind == VALUE_LIST ? must_list->n : 0;
    assert_int_equal(value_get(recorded, "available")->number, res->n_devices);
    for (size_t i = 0; i < res->n_devices; i++)
        available[i] = res->devices[res->by_id[i]].id;

    auto_buf request, answer, ours, theirs;
    struct error err;
    buf_init(&request, ANSWER_MAX);
    buf_init(&answer, ANSWER_MAX);
    buf_init(&ours, FILE_MAX);
    buf_init(&theirs, FILE_MAX);
    preferred_request(&request, available, res->n_devices, must, n_must,
                      (int)value_get(recorded, "size")->number);
    int rc = plugin_preferred(&r->context, res, buf_view(&request), &answer, &err);
    if (value_get(recorded, "error")) {
        check_refusal(r, recorded, rc, &err);
        return;
    }
    const struct value *containers =
        value_get(value_get(recorded, "response"), "container_responses");
    const struct value *ids = value_get(&containers->items[0], "deviceIDs");
    for (size_t i = 0; ids && i < ids->n; i++)
        buf_fmt(&theirs, "%.*s\n", STR_FMT(ids->items[i].text));
    if (rc < 0) {
        differs(r, NULL, err.text, theirs.n ? theirs.p : "");
        return;
    }
    preferred_text(buf_view(&answer), &ours);
    bool must_kept = n_must == 0 || strstr(ours.n ? ours.p : "", must[0]) || !theirs.n;
    assert_true(must_kept);
    if (res->sharing != SHARING_NONE) {
        counts_per_gpu(&ours);
        counts_per_gpu(&theirs);
    }
    sort_lines(&ours);
    sort_lines(&theirs);
    compare(r, &ours, &theirs);
}

static void check_published(struct run *r, const struct resource *res, const struct value *recorded)
{
    auto_buf list, ours, theirs;
    struct error err;
    buf_init(&list, ANSWER_MAX);
    buf_init(&ours, FILE_MAX);
    buf_init(&theirs, FILE_MAX);
    step(r, " list");
    assert_int_equal(plugin_list(res, r->survey, &list, &err), 0);
    list_text(buf_view(&list), &ours);
    recorded_list(value_get(recorded, "list"), &theirs);
    compare(r, &ours, &theirs);

    step(r, " register");
    const struct value *reg = value_get(recorded, "register");
    buf_reset(&list);
    buf_reset(&ours);
    buf_reset(&theirs);
    assert_int_equal(plugin_register_request(res, &list, &err), 0);
    register_text(buf_view(&list), &ours);
    buf_fmt(&theirs, "%s %s %s%s", text_of(reg, "version"), text_of(reg, "endpoint"),
            text_of(reg, "resource_name"),
            value_get(value_get(reg, "options"), "get_preferred_allocation_available")
                ? " preferred"
                : "");
    assert_string_equal(ours.p, theirs.p);
    assert_null(value_get(value_get(recorded, "options"), "pre_start_required"));
}

static void check_resource(struct run *r, const struct resource *res, const struct value *recorded)
{
    check_published(r, res, recorded);
    const struct value *calls = value_get(recorded, "allocate");
    for (size_t i = 0; i < calls->n; i++) {
        step(r, " allocate %s", calls->members[i].key.p);
        check_allocate(r, res, &calls->members[i].value);
    }
    const struct value *edges = value_get(recorded, "edge");
    for (size_t i = 0; i < edges->n; i++) {
        const struct member *m = &edges->members[i];
        step(r, " edge %s", m->key.p);
        if (str_starts(m->key, "preferred"))
            check_preferred(r, res, &m->value);
        else
            check_allocate(r, res, &m->value);
    }
}

/* ---- CDI files ---- */

/* Nodes in effect: hostPath defaults to path, permissions to rwm. Numbers only where both have
 * them: a test without CAP_MKNOD has plain files. */
static void cdi_nodes(const struct value *edits, const char *device, bool numbers, struct buf *out)
{
    const struct value *nodes = value_get(edits, "deviceNodes");
    for (size_t i = 0; nodes && i < nodes->n; i++) {
        const struct value *n = &nodes->items[i];
        const char *path = text_of(n, "path");
        const struct value *major = value_get(n, "major"), *minor = value_get(n, "minor"),
                           *mode = value_get(n, "fileMode");
        buf_fmt(out, "%s %s<%s %s", device, path, value_text(value_get(n, "hostPath"), path),
                value_text(value_get(n, "permissions"), "rwm"));
        if (numbers && major)
            buf_fmt(out, " %lld:%lld %lld", (long long)major->number,
                    (long long)(minor ? minor->number : 0), (long long)(mode ? mode->number : 0));
        buf_ch(out, '\n');
    }
}

static void cdi_words(const struct value *list, struct buf *out)
{
    for (size_t i = 0; list && i < list->n; i++)
        buf_fmt(out, " %.*s", STR_FMT(list->items[i].text));
}

/* A hook's place among its like counts; the links of one hook are a set. */
static void cdi_hooks_text(const struct value *edits, const char *device, struct buf *out)
{
    const struct value *hooks = value_get(edits, "hooks");
    for (size_t i = 0; hooks && i < hooks->n; i++) {
        const struct value *h = &hooks->items[i], *args = value_get(h, "args");
        bool links = false;
        buf_fmt(out, "%s hook %zu %s %s:", device, i, text_of(h, "hookName"), text_of(h, "path"));
        cdi_words(value_get(h, "env"), out);
        for (size_t k = 0; args && k < args->n; k++) {
            links = links || str_is(args->items[k].text, "--link");
            if (!links)
                buf_fmt(out, " %.*s", STR_FMT(args->items[k].text));
        }
        buf_ch(out, '\n');
        for (size_t k = 0; links && k < args->n; k++)
            if (strstr(args->items[k].text.p, "::"))
                buf_fmt(out, "%s hook %zu link %.*s\n", device, i, STR_FMT(args->items[k].text));
    }
}

static void cdi_files_text(const struct value *edits, const char *device, struct buf *out)
{
    const struct value *env = value_get(edits, "env"), *mounts = value_get(edits, "mounts");
    for (size_t i = 0; env && i < env->n; i++)
        buf_fmt(out, "%s env %.*s\n", device, STR_FMT(env->items[i].text));
    for (size_t i = 0; mounts && i < mounts->n; i++) {
        const struct value *m = &mounts->items[i];
        buf_fmt(out, "%s mount %s %s:", device, text_of(m, "hostPath"),
                text_of(m, "containerPath"));
        cdi_words(value_get(m, "options"), out);
        buf_ch(out, '\n');
    }
    cdi_hooks_text(edits, device, out);
}

static bool has_device(const struct value *spec, const char *name)
{
    const struct value *devices = value_get(spec, "devices");
    for (size_t i = 0; i < devices->n; i++)
        if (strcmp(text_of(&devices->items[i], "name"), name) == 0)
            return true;
    return false;
}

/* Devices that `named` has too; *ret_more: how many others there are. */
static void cdi_text(const struct value *spec, const struct value *named, bool numbers,
                     struct buf *out, size_t *ret_more)
{
    const struct value *devices = value_get(spec, "devices");
    *ret_more = 0;
    buf_fmt(out, "%s\n", text_of(spec, "kind"));
    for (size_t i = 0; i <= devices->n; i++) {
        const struct value *edits =
            value_get(i < devices->n ? &devices->items[i] : spec, "containerEdits");
        const char *name = i < devices->n ? text_of(&devices->items[i], "name") : "*";
        if (i < devices->n && !has_device(named, name)) {
            ++*ret_more;
            continue;
        }
        cdi_nodes(edits, name, numbers, out);
        cdi_files_text(edits, name, out);
    }
    sort_lines(out);
}

static void check_cdi_spec(struct run *r, const struct cdi_spec *spec, const struct value *theirs)
{
    auto_buf bytes, a, b;
    struct value *ours;
    struct error err;
    const char *class = strrchr(spec->kind, '/') + 1;
    buf_init(&bytes, FILE_MAX);
    buf_init(&a, FILE_MAX);
    buf_init(&b, FILE_MAX);
    assert_int_equal(cdi_encode(spec, &bytes, &err), 0);
    assert_int_equal(
        json_parse(&r->arena, buf_view(&bytes), "cdi", &doc_limits_default, &ours, &err), 0);
    bool numbers = strstr(bytes.p, "\"major\"") && strcmp(class, "imex-channel") != 0 &&
                   !str_starts(str_of(r->where), "h200"); /* its uvm major is another */
    size_t more, less;
    step(r, " cdi effect %s", class);
    cdi_text(ours, theirs, numbers, &a, &more);
    cdi_text(theirs, ours, numbers, &b, &less);
    compare(r, &a, &b);
    assert_int_equal(less, 0);

    step(r, " cdi version %s", class);
    if (strcmp(text_of(ours, "cdiVersion"), text_of(theirs, "cdiVersion")) != 0)
        differs(r, "cdi-version", text_of(ours, "cdiVersion"), text_of(theirs, "cdiVersion"));
    step(r, " cdi names %s", class);
    if (more > 0)
        differs(r, "cdi-more-names", "", "");
}

static void check_cdi(struct run *r)
{
    const struct value *recorded = value_get(r->recorded, "cdi");
    struct cdi_spec *specs;
    struct error err;
    size_t n;
    if (!recorded)
        return;
    assert_int_equal(cdi_build(&r->arena, &r->host.host, r->survey, r->config, &specs, &n, &err),
                     0);
    assert_int_equal(n, recorded->n);
    for (size_t i = 0; i < n; i++) {
        const struct value *theirs = value_get(recorded, strrchr(specs[i].kind, '/') + 1);
        assert_non_null(theirs);
        check_cdi_spec(r, &specs[i], theirs);
    }
}

/* ---- failures ---- */

/* Our text up to the remedy stands in the peer's log. */
static void check_failure(struct run *r)
{
    const char *theirs = text_of(r->recorded, "failure");
    step(r, " failure");
    if (!strstr(theirs, "exit status 1")) { /* the peer says nothing and offers nothing */
        assert_string_equal(r->failure.text, "");
        assert_int_equal(r->inv->n_resources, 0);
        assert_true(r->inv->notes.n > 0);
        differs(r, NULL, "", theirs);
        return;
    }
    size_t n = strcspn(r->failure.text, ";(");
    while (n > 0 && r->failure.text[n - 1] == ' ')
        n--;
    auto_free char *cause = x_strndup(r->failure.text, n);
    if (n == 0 || !strstr(theirs, cause))
        fail_msg("%s\n ours:   %s\n theirs: %s", r->where, r->failure.text, theirs);
    differs(r, NULL, r->failure.text, theirs);
}

static void check_started(struct run *r)
{
    const struct value *resources = value_get(r->recorded, "resources");
    if (r->failure.text[0])
        fail_msg("%s: %s", r->where, r->failure.text);
    assert_int_equal(r->inv->n_resources, resources->n);
    for (size_t i = 0; i < resources->n; i++) {
        const struct resource *res = inventory_resource(r->inv, resources->members[i].key.p);
        assert_non_null(res);
        check_resource(r, res, &resources->members[i].value);
    }
    check_cdi(r);
}

static void run_one(const char *path, const char *profile, const char *variant)
{
    struct run r = { .where_n = 0 };
    struct error err;
    auto_free char *text = NULL;
    struct value *recorded;
    arena_init(&r.arena, 64 * 1024 * 1024);
    r.where_n = (size_t)snprintf(r.where, sizeof(r.where), "%s/%.*s", profile,
                                 (int)(strlen(variant) - strlen(".json")), variant);
    if (file_read(path, FILE_MAX, &text, NULL, &err) < 0 ||
        json_parse(&r.arena, str_of(text), variant, &doc_limits_default, &recorded, &err) < 0)
        fail_msg("%s", err.text);
    r.recorded = recorded;
    load_config(&r);
    make_host(&r);
    start(&r);
    if (value_get(recorded, "failure"))
        check_failure(&r);
    else
        check_started(&r);
    inventory_free(r.inv);
    fixture_host_done(&r.host);
    survey_unref(r.survey);
    pluginconfig_free(r.config);
    opts_done(&r.opts);
    arena_done(&r.arena);
}

/* ---- all runs ---- */

static const char *recordings, *differences_file;

static void run_profile(const char *profile, size_t *n)
{
    char dir[500], path[800];
    struct dirent **entries;
    snprintf(dir, sizeof(dir), "%s/%s", recordings, profile);
    int count = scandir(dir, &entries, NULL, alphasort);
    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        if (str_ends(str_of(name), ".json")) {
            run_one(path, profile, name);
            ++*n;
        }
        free(entries[i]);
    }
    free(entries);
}

static void test_profile(void **state)
{
    size_t n = 0;
    const char *const *profile = (const char *const *)*state;
    run_profile(*profile, &n);
    print_message("%s: %zu runs\n", *profile, n);
    assert_true(n > 0);
}

static void test_differences(void **state)
{
    auto_free char *text = NULL;
    struct error err;
    if (file_read(differences_file, FILE_MAX, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(differences); i++) {
        auto_free char *entry = x_printf("`%s`", differences[i].name);
        if (!differences[i].seen)
            fail_msg("no run needs the difference %s at %s", differences[i].name,
                     differences[i].variant);
        if (!strstr(text, entry))
            fail_msg("%s is not explained in %s", entry, differences_file);
    }
}

int main(int argc, char **argv)
{
    static const char *profiles[] = { "a100", "h100", "h100-mig", "h200" };
    if (argc != 3) {
        fprintf(stderr, "usage: test-device-plugin RECORDINGS DIFFERENCES.md\n");
        return 2;
    }
    recordings = argv[1];
    differences_file = argv[2];
    const struct CMUnitTest tests[] = {
        { "a100", test_profile, NULL, NULL, &profiles[0] },
        { "h100", test_profile, NULL, NULL, &profiles[1] },
        { "h100-mig", test_profile, NULL, NULL, &profiles[2] },
        { "h200", test_profile, NULL, NULL, &profiles[3] },
        { "differences", test_differences, NULL, NULL, NULL },
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
