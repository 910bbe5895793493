/* SPDX-License-Identifier: Apache-2.0 */
/* Source: System V ABI (gABI) chapters 4 and 5; only 64-bit and 32-bit little-endian files. */
#include "elf/elffile.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { PROGRAM_HEADERS_MAX = 256, SECTIONS_MAX = 4096, DYNAMIC_MAX = 4096, NAMES_MAX = 64 * 1024 };

/* One loadable or special segment, widened to 64 bits. */
struct segment {
    uint32_t type;
    uint64_t offset, address, size;
};

struct section {
    uint32_t name, type;
    uint64_t offset, size;
};

struct image {
    int fd;
    uint64_t file_size;
    bool is64;
    uint16_t machine, type;
    uint64_t ph_offset, sh_offset;
    uint16_t ph_size, ph_count, sh_size, sh_count, sh_names;
    /* Headers and tables are read piece by piece: the file's begin stays, beside what was read
     * last. */
    struct window {
        uint64_t at;
        size_t n;
        char bytes[4096];
    } begin, last;
};

static int cut_off(struct error *err, const char *what)
{
    return error_set(err, ERR_INVALID, 0, "ELF file is cut off or contradictory: %s", what);
}

static int read_file(const struct image *im, uint64_t at, void *p, size_t n, const char *what,
                     struct error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(im->fd, (char *)p + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, errno, "read the ELF file");
        if (got == 0)
            return cut_off(err, what);
        done += (size_t)got;
    }
    return 0;
}

static int read_at(struct image *im, uint64_t at, void *p, size_t n, const char *what,
                   struct error *err)
{
    if (at > im->file_size || n > im->file_size - at)
        return cut_off(err, what);
    if (n > sizeof im->last.bytes)
        return read_file(im, at, p, n, what, err);
    struct window *w = at + n <= sizeof im->begin.bytes ? &im->begin : &im->last;
    if (at < w->at || at + n > w->at + w->n) {
        w->at = w == &im->begin ? 0 : at;
        w->n = (size_t)MIN((uint64_t)sizeof w->bytes, im->file_size - w->at);
        int r = read_file(im, w->at, w->bytes, w->n, what, err);
        if (r < 0) {
            w->n = 0;
            return r;
        }
    }
    memcpy(p, w->bytes + (at - w->at), n);
    return 0;
}

static void take_header64(struct image *im, const Elf64_Ehdr *h)
{
    im->machine = h->e_machine;
    im->type = h->e_type;
    im->ph_offset = h->e_phoff;
    im->ph_size = h->e_phentsize;
    im->ph_count = h->e_phnum;
    im->sh_offset = h->e_shoff;
    im->sh_size = h->e_shentsize;
    im->sh_count = h->e_shnum;
    im->sh_names = h->e_shstrndx;
}

static void take_header32(struct image *im, const Elf32_Ehdr *h)
{
    im->machine = h->e_machine;
    im->type = h->e_type;
    im->ph_offset = h->e_phoff;
    im->ph_size = h->e_phentsize;
    im->ph_count = h->e_phnum;
    im->sh_offset = h->e_shoff;
    im->sh_size = h->e_shentsize;
    im->sh_count = h->e_shnum;
    im->sh_names = h->e_shstrndx;
}

static int image_open(int fd, struct image *im, struct error *err)
{
    struct stat st;
    union {
        unsigned char ident[EI_NIDENT];
        Elf64_Ehdr h64;
        Elf32_Ehdr h32;
    } u;
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "look at the ELF file");
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERR_INVALID, 0, "not a regular file");
    im->fd = fd;
    im->file_size = (uint64_t)st.st_size;
    im->begin.n = im->last.n = 0;
    im->begin.at = im->last.at = 0;
    int r = read_at(im, 0, u.ident, sizeof u.ident, "the identification", err);
    if (r < 0)
        return r;
    if (memcmp(u.ident, ELFMAG, SELFMAG) != 0)
        return error_set(err, ERR_INVALID, 0, "not an ELF file");
    if (u.ident[EI_DATA] != ELFDATA2LSB)
        return error_set(err, ERR_UNSUPPORTED, 0, "ELF file is not little-endian");
    im->is64 = u.ident[EI_CLASS] == ELFCLASS64;
    if (!im->is64 && u.ident[EI_CLASS] != ELFCLASS32)
        return cut_off(err, "neither 32-bit nor 64-bit");
    r = read_at(im, 0, &u, im->is64 ? sizeof u.h64 : sizeof u.h32, "the header", err);
    if (r < 0)
        return r;
    if (im->is64)
        take_header64(im, &u.h64);
    else
        take_header32(im, &u.h32);
    return 0;
}

static int segment_at(struct image *im, unsigned i, struct segment *ret, struct error *err)
{
    uint64_t at;
    if (im->ph_size < (im->is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)))
        return cut_off(err, "program header size");
    if (__builtin_add_overflow(im->ph_offset, (uint64_t)i * im->ph_size, &at))
        return cut_off(err, "program header place");
    if (im->is64) {
        Elf64_Phdr p;
        int r = read_at(im, at, &p, sizeof p, "a program header", err);
        if (r < 0)
            return r;
        *ret = (struct segment){ p.p_type, p.p_offset, p.p_vaddr, p.p_filesz };
    } else {
        Elf32_Phdr p;
        int r = read_at(im, at, &p, sizeof p, "a program header", err);
        if (r < 0)
            return r;
        *ret = (struct segment){ p.p_type, p.p_offset, p.p_vaddr, p.p_filesz };
    }
    return 0;
}

/* File offset of an address, by the loadable segments. */
static int offset_of(struct image *im, uint64_t address, uint64_t *ret, struct error *err)
{
    for (unsigned i = 0; i < im->ph_count; i++) {
        struct segment s;
        int r = segment_at(im, i, &s, err);
        if (r < 0)
            return r;
        if (s.type == PT_LOAD && address >= s.address && address - s.address < s.size) {
            *ret = s.offset + (address - s.address);
            return 0;
        }
    }
    return cut_off(err, "an address outside every loaded segment");
}

static int dynamic_at(struct image *im, uint64_t at, int64_t *tag, uint64_t *value,
                      struct error *err)
{
    if (im->is64) {
        Elf64_Dyn d;
        int r = read_at(im, at, &d, sizeof d, "the dynamic section", err);
        *tag = r < 0 ? DT_NULL : d.d_tag;
        *value = r < 0 ? 0 : d.d_un.d_val;
        return r;
    }
    Elf32_Dyn d;
    int r = read_at(im, at, &d, sizeof d, "the dynamic section", err);
    *tag = r < 0 ? DT_NULL : d.d_tag;
    *value = r < 0 ? 0 : d.d_un.d_val;
    return r;
}

static int read_soname(struct image *im, const struct segment *dynamic, char *ret,
                       struct error *err)
{
    uint64_t strings = 0, soname = 0, size = im->is64 ? sizeof(Elf64_Dyn) : sizeof(Elf32_Dyn);
    bool has_strings = false, has_soname = false;
    uint64_t count = MIN(dynamic->size / size, (uint64_t)DYNAMIC_MAX);
    for (uint64_t i = 0; i < count; i++) {
        int64_t tag;
        uint64_t value;
        int r = dynamic_at(im, dynamic->offset + i * size, &tag, &value, err);
        if (r < 0)
            return r;
        if (tag == DT_NULL)
            break;
        if (tag == DT_STRTAB)
            strings = value, has_strings = true;
        else if (tag == DT_SONAME)
            soname = value, has_soname = true;
    }
    if (!has_soname)
        return 0;
    uint64_t at, end;
    if (!has_strings)
        return cut_off(err, "a SONAME without a string table");
    int r = offset_of(im, strings, &at, err);
    if (r < 0)
        return r;
    if (__builtin_add_overflow(at, soname, &end) || end >= im->file_size)
        return cut_off(err, "the SONAME lies outside the file");
    size_t n = (size_t)MIN(im->file_size - end, (uint64_t)ELF_SONAME_MAX + 1);
    r = read_at(im, end, ret, n, "the SONAME", err);
    if (r == 0 && !memchr(ret, '\0', n)) {
        ret[0] = '\0';
        return error_set(err, ERR_LIMIT, 0, "the SONAME is longer than %d bytes", ELF_SONAME_MAX);
    }
    return r;
}

int elf_read(int fd, struct elf_facts *ret, struct error *err)
{
    struct image im;
    struct elf_facts facts = { 0 };
    int r = image_open(fd, &im, err);
    if (r < 0)
        return r;
    if (im.ph_count > PROGRAM_HEADERS_MAX)
        return cut_off(err, "too many program headers");
    facts.machine = im.machine;
    facts.is64 = im.is64;
    facts.shared = im.type == ET_DYN;
    for (unsigned i = 0; i < im.ph_count; i++) {
        struct segment s;
        r = segment_at(&im, i, &s, err);
        if (r == 0 && s.type == PT_DYNAMIC)
            r = read_soname(&im, &s, facts.soname, err);
        if (r < 0)
            return r;
    }
    *ret = facts;
    return 0;
}

static int section_at(struct image *im, unsigned i, struct section *ret, struct error *err)
{
    uint64_t at;
    if (im->sh_size < (im->is64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr)))
        return cut_off(err, "section header size");
    if (__builtin_add_overflow(im->sh_offset, (uint64_t)i * im->sh_size, &at))
        return cut_off(err, "section header place");
    if (im->is64) {
        Elf64_Shdr s;
        int r = read_at(im, at, &s, sizeof s, "a section header", err);
        if (r < 0)
            return r;
        *ret = (struct section){ s.sh_name, s.sh_type, s.sh_offset, s.sh_size };
    } else {
        Elf32_Shdr s;
        int r = read_at(im, at, &s, sizeof s, "a section header", err);
        if (r < 0)
            return r;
        *ret = (struct section){ s.sh_name, s.sh_type, s.sh_offset, s.sh_size };
    }
    return 0;
}

int elf_note(int fd, const char *section, size_t max, char **ret_text, size_t *ret_n,
             struct error *err)
{
    struct image im;
    struct section names, s;
    int r = image_open(fd, &im, err);
    if (r < 0)
        return r;
    if (im.sh_count > SECTIONS_MAX || im.sh_names >= im.sh_count)
        return error_set(err, ERR_NOT_FOUND, 0, "no section %s", section);
    r = section_at(&im, im.sh_names, &names, err);
    if (r < 0)
        return r;
    size_t names_n = (size_t)MIN(names.size, (uint64_t)NAMES_MAX);
    auto_free char *table = try_alloc(names_n + 1);
    if (!table)
        return error_set(err, ERR_LIMIT, 0, "no memory for %zu bytes of section names", names_n);
    r = read_at(&im, names.offset, table, names_n, "the section names", err);
    for (unsigned i = 0; r == 0 && i < im.sh_count; i++) {
        r = section_at(&im, i, &s, err);
        if (r < 0 || s.type == SHT_NOBITS || s.name >= names_n ||
            strcmp(table + s.name, section) != 0)
            continue;
        if (s.size > max)
            return error_set(err, ERR_LIMIT, 0,
                             "section %s has %llu bytes, at most %zu are accepted", section,
                             (unsigned long long)s.size, max);
        auto_free char *text = try_alloc((size_t)s.size + 1);
        if (!text)
            return error_set(err, ERR_LIMIT, 0, "no memory for section %s", section);
        r = read_at(&im, s.offset, text, (size_t)s.size, section, err);
        if (r < 0)
            return r;
        *ret_n = (size_t)s.size;
        *ret_text = steal(text);
        return 0;
    }
    return r < 0 ? r : error_set(err, ERR_NOT_FOUND, 0, "no section %s", section);
}
