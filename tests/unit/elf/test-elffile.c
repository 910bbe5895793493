/* SPDX-License-Identifier: Apache-2.0 */
/* What a shared library says of itself; files made by hand, whole and spoiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "elf/elffile.h"

/* A file of headers, a dynamic section and texts; where they lie is what a test changes. */
struct layout {
    bool is64;
    uint16_t machine;
    const char *soname;       /* NULL: no such entry */
    uint64_t dynamic_at;      /* distance of the dynamic section, to be far from the headers */
    uint64_t strings_address; /* 0: where they are */
    uint64_t soname_at;       /* 0: 1 */
    size_t entries;           /* entries before the two that count */
};

enum { FILE_SIZE = 65536, BASE = 0x10000, STRINGS_AT = 60000 };

static int make_file(const struct layout *l)
{
    static unsigned char file[FILE_SIZE];
    memset(file, 0, sizeof file);
    uint64_t dyn = l->dynamic_at ? l->dynamic_at : 1024,
             strings = l->strings_address ? l->strings_address : BASE + STRINGS_AT,
             name = l->soname_at ? l->soname_at : 1;
    size_t n = l->entries + 3;
    if (l->is64) {
        Elf64_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
                         .e_type = ET_DYN,
                         .e_machine = l->machine,
                         .e_phoff = sizeof h,
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_phnum = 2 };
        Elf64_Phdr p[2] = {
            { .p_type = PT_LOAD, .p_vaddr = BASE, .p_filesz = FILE_SIZE },
            { .p_type = PT_DYNAMIC, .p_offset = dyn, .p_filesz = n * sizeof(Elf64_Dyn) },
        };
        memcpy(file, &h, sizeof h);
        memcpy(file + sizeof h, p, sizeof p);
        Elf64_Dyn *d = (void *)(file + dyn);
        for (size_t i = 0; i < l->entries; i++)
            d[i] = (Elf64_Dyn){ .d_tag = DT_NEEDED };
        d[l->entries] = (Elf64_Dyn){ DT_STRTAB, { strings } };
        if (l->soname)
            d[l->entries + 1] = (Elf64_Dyn){ DT_SONAME, { name } };
    } else {
        Elf32_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT },
                         .e_type = ET_DYN,
                         .e_machine = l->machine,
                         .e_phoff = sizeof h,
                         .e_phentsize = sizeof(Elf32_Phdr),
                         .e_phnum = 2 };
        Elf32_Phdr p[2] = {
            { .p_type = PT_LOAD, .p_vaddr = BASE, .p_filesz = FILE_SIZE },
            { .p_type = PT_DYNAMIC,
              .p_offset = (Elf32_Off)dyn,
              .p_filesz = (Elf32_Word)(n * sizeof(Elf32_Dyn)) },
        };
        memcpy(file, &h, sizeof h);
        memcpy(file + sizeof h, p, sizeof p);
        Elf32_Dyn *d = (void *)(file + dyn);
        for (size_t i = 0; i < l->entries; i++)
            d[i] = (Elf32_Dyn){ .d_tag = DT_NEEDED };
        d[l->entries] = (Elf32_Dyn){ DT_STRTAB, { (Elf32_Word)strings } };
        if (l->soname)
            d[l->entries + 1] = (Elf32_Dyn){ DT_SONAME, { (Elf32_Word)name } };
    }
    if (l->soname)
        memcpy(file + STRINGS_AT + 1, l->soname, strlen(l->soname) + 1);
    int fd = memfd_create("elf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file, sizeof file), sizeof file);
    return fd;
}

static void facts(void **state)
{
    char longest[ELF_SONAME_MAX + 1], longer[ELF_SONAME_MAX + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const struct {
        const char *what;
        struct layout l;
        int r;
        const char *soname;
    } cases[] = {
        { "64 bits", { true, EM_X86_64, "libcuda.so.1" }, 0, "libcuda.so.1" },
        { "another machine", { true, EM_AARCH64, "libcuda.so.1" }, 0, "libcuda.so.1" },
        { "32 bits", { false, EM_386, "libcuda.so.1" }, 0, "libcuda.so.1" },
        { "no name", { true, EM_X86_64, NULL }, 0, "" },
        { "the dynamic section is far", { true, EM_X86_64, "a", 50000 }, 0, "a" },
        { "many entries", { true, EM_X86_64, "a", .entries = 600 }, 0, "a" },
        { "a table across reads", { true, EM_X86_64, "a", 4090 & ~7, .entries = 3 }, 0, "a" },
        { "the longest name", { true, EM_X86_64, longest }, 0, longest },
        { "a longer name", { true, EM_X86_64, longer }, -ERR_LIMIT, "" },
        { "texts outside every segment",
          { true, EM_X86_64, "a", .strings_address = 5 },
          -ERR_INVALID,
          "" },
        { "a name past the end",
          { true, EM_X86_64, "a", .soname_at = FILE_SIZE },
          -ERR_INVALID,
          "" },
        { "a name beyond 64 bits",
          { true, EM_X86_64, "a", .soname_at = UINT64_MAX },
          -ERR_INVALID,
          "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct elf_facts f;
        struct error err;
        auto_close int fd = make_file(&cases[i].l);
        int r = elf_read(fd, &f, &err);
        if (r != cases[i].r)
            fail_msg("%s: %d %s", cases[i].what, r, r < 0 ? err.text : "");
        if (r < 0)
            continue;
        assert_string_equal(f.soname, cases[i].soname);
        assert_int_equal(f.is64, cases[i].l.is64);
        assert_int_equal(f.machine, cases[i].l.machine);
        assert_true(f.shared);
    }
}

/* Any byte of headers, tables and texts may be anything: an answer or an error, never more. */
static void spoiled_bytes(void **state)
{
    const struct layout l = { true, EM_X86_64, "libcuda.so.1", .entries = 2 };
    auto_close int fd = make_file(&l);
    static const unsigned char values[] = { 0, 1, 0x7f, 0x80, 0xff };
    for (off_t at = 0; at < 1200; at++) {
        unsigned char was;
        assert_int_equal(pread(fd, &was, 1, at), 1);
        for (size_t k = 0; k < sizeof values; k++) {
            struct elf_facts f;
            struct error err;
            assert_int_equal(pwrite(fd, &values[k], 1, at), 1);
            int r = elf_read(fd, &f, &err);
            assert_true(r == 0 || r == -ERR_INVALID || r == -ERR_UNSUPPORTED || r == -ERR_LIMIT);
            if (r == 0)
                assert_true(memchr(f.soname, '\0', sizeof f.soname) != NULL);
        }
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    assert_int_equal(ftruncate(fd, 0), 0);
    struct elf_facts f;
    struct error err;
    assert_int_equal(elf_read(fd, &f, &err), -ERR_INVALID);
}

static void no_file(void **state)
{
    struct elf_facts f;
    struct error err;
    auto_close int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_int_equal(elf_read(dir, &f, &err), -ERR_INVALID);
    assert_int_equal(elf_read(zero, &f, &err), -ERR_INVALID);
    assert_int_equal(elf_read(-1, &f, &err), -ERR_INTERNAL);
}

/* A section with a text, as the compatibility libraries of CUDA carry it. */
static void notes(void **state)
{
    static unsigned char file[4096];
    static const char names[] = "\0.shstrtab\0.note.x", text[] = "{\"a\":1}";
    Elf64_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
                     .e_type = ET_DYN,
                     .e_shoff = 1024,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = 3,
                     .e_shstrndx = 1 };
    Elf64_Shdr s[3] = {
        { .sh_type = SHT_NULL },
        { .sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = 512, .sh_size = sizeof names },
        { .sh_name = 11, .sh_type = SHT_NOTE, .sh_offset = 600, .sh_size = sizeof text - 1 },
    };
    memcpy(file, &h, sizeof h);
    memcpy(file + 512, names, sizeof names);
    memcpy(file + 600, text, sizeof text);
    memcpy(file + 1024, s, sizeof s);
    auto_close int fd = memfd_create("elf", MFD_CLOEXEC);
    assert_int_equal(write(fd, file, sizeof file), sizeof file);
    auto_free char *got = NULL;
    size_t n;
    struct error err;
    assert_int_equal(elf_note(fd, ".note.x", 100, &got, &n, &err), 0);
    assert_string_equal(got, text);
    assert_int_equal(n, sizeof text - 1);
    char *none = NULL;
    assert_int_equal(elf_note(fd, ".note.y", 100, &none, &n, &err), -ERR_NOT_FOUND);
    assert_int_equal(elf_note(fd, ".note.x", 3, &none, &n, &err), -ERR_LIMIT);
    s[2].sh_offset = UINT64_MAX - 2;
    assert_int_equal(pwrite(fd, s, sizeof s, 1024), sizeof s);
    assert_int_equal(elf_note(fd, ".note.x", 100, &none, &n, &err), -ERR_INVALID);
    s[1].sh_offset = 4095;
    assert_int_equal(pwrite(fd, s, sizeof s, 1024), sizeof s);
    assert_int_equal(elf_note(fd, ".note.x", 100, &none, &n, &err), -ERR_INVALID);
    for (uint64_t k = 1; k < 3; k++) {
        mem_fail_at(k);
        int r = elf_note(fd, ".note.x", 100, &none, &n, &err);
        mem_fail_at(0);
        assert_true(r == -ERR_LIMIT || r == -ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts),
        cmocka_unit_test(spoiled_bytes),
        cmocka_unit_test(no_file),
        cmocka_unit_test(notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
