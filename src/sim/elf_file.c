/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/elf_file.h"

#include <elf.h>
#include <string.h>

#include "base/mem.h"

void sim_elf_standin(struct buf *out, const char *soname, bool aarch64)
{
    enum { LOAD, DYNAMIC, STACK, N_HEADERS };
    size_t at_symbols = sizeof(Elf64_Ehdr) + N_HEADERS * sizeof(Elf64_Phdr);
    size_t at_hash = at_symbols + sizeof(Elf64_Sym);
    size_t at_names = at_hash + 4 * sizeof(uint32_t), names = strlen(soname) + 2;
    size_t at_dynamic = (at_names + names + 7) & ~(size_t)7;
    const Elf64_Dyn dynamic[] = {
        { .d_tag = DT_SONAME, .d_un.d_val = 1 },
        { .d_tag = DT_HASH, .d_un.d_ptr = at_hash },
        { .d_tag = DT_STRTAB, .d_un.d_ptr = at_names },
        { .d_tag = DT_STRSZ, .d_un.d_val = names },
        { .d_tag = DT_SYMTAB, .d_un.d_ptr = at_symbols },
        { .d_tag = DT_SYMENT, .d_un.d_val = sizeof(Elf64_Sym) },
        { .d_tag = DT_NULL },
    };
    size_t size = at_dynamic + sizeof(dynamic);
    const Elf64_Ehdr head = {
        .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
        .e_type = ET_DYN,
        .e_machine = aarch64 ? EM_AARCH64 : EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof(Elf64_Ehdr),
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = N_HEADERS,
        .e_shentsize = sizeof(Elf64_Shdr),
    };
    /* The loader writes into the dynamic section, so the one segment is writable. */
    const Elf64_Phdr headers[N_HEADERS] = {
        [LOAD] = { .p_type = PT_LOAD,
                   .p_flags = PF_R | PF_W,
                   .p_filesz = size,
                   .p_memsz = size,
                   .p_align = 0x1000 },
        [DYNAMIC] = { .p_type = PT_DYNAMIC,
                      .p_flags = PF_R | PF_W,
                      .p_offset = at_dynamic,
                      .p_vaddr = at_dynamic,
                      .p_paddr = at_dynamic,
                      .p_filesz = sizeof(dynamic),
                      .p_memsz = sizeof(dynamic),
                      .p_align = 8 },
        /* Without it the loader takes it that code on the stack is wanted, and newer ones refuse.
         */
        [STACK] = { .p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16 },
    };
    const uint32_t hash[4] = { 1, 1, 0, 0 };
    buf_add(out, &head, sizeof(head));
    buf_add(out, headers, sizeof(headers));
    buf_add(out, &(Elf64_Sym){ 0 }, sizeof(Elf64_Sym));
    buf_add(out, hash, sizeof(hash));
    buf_add(out, "", 1);
    buf_add(out, soname, strlen(soname) + 1);
    buf_add(out, "\0\0\0\0\0\0\0", at_dynamic - at_names - names);
    buf_add(out, dynamic, sizeof(dynamic));
}

struct symbols {
    const Elf64_Sym *table;
    size_t n;
    char *names;
    size_t n_names;
};

static bool within(size_t n, uint64_t at, uint64_t size)
{
    return at <= n && size <= n - at;
}

static bool find_symbols(unsigned char *bytes, size_t n, struct symbols *ret)
{
    Elf64_Ehdr head;
    if (n < sizeof(head))
        return false;
    memcpy(&head, bytes, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shoff % 8 != 0 ||
        !within(n, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr)))
        return false;
    const Elf64_Shdr *sections = (const void *)(bytes + head.e_shoff);
    for (size_t i = 0; i < head.e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (s->sh_type != SHT_DYNSYM || s->sh_link >= head.e_shnum)
            continue;
        const Elf64_Shdr *names = &sections[s->sh_link];
        if (s->sh_offset % 8 != 0 || !within(n, s->sh_offset, s->sh_size) ||
            !within(n, names->sh_offset, names->sh_size) || names->sh_size == 0 ||
            bytes[names->sh_offset + names->sh_size - 1] != 0)
            return false;
        ret->table = (const void *)(bytes + s->sh_offset);
        ret->n = s->sh_size / sizeof(Elf64_Sym);
        ret->names = (char *)bytes + names->sh_offset;
        ret->n_names = names->sh_size;
        return true;
    }
    return false;
}

static size_t hide_matching(const struct symbols *s, struct str pattern)
{
    size_t hidden = 0;
    for (size_t i = 0; i < s->n; i++) {
        const Elf64_Sym *sym = &s->table[i];
        if (sym->st_name == 0 || sym->st_name >= s->n_names || sym->st_shndx == SHN_UNDEF)
            continue;
        char *name = s->names + sym->st_name;
        if (!str_glob(pattern, str_of(name)))
            continue;
        name[0] = '?';
        hidden++;
    }
    return hidden;
}

int sim_elf_hide(unsigned char *bytes, size_t n, const char *list, size_t *ret_hidden,
                 struct error *err)
{
    struct symbols s;
    if (!find_symbols(bytes, n, &s))
        return error_set(err, ERR_INVALID, 0,
                         "the library to hide symbols in is no 64-bit ELF file with dynamic "
                         "symbols");
    size_t hidden = 0;
    for (struct str rest = str_of(list); rest.p;) {
        struct str pattern = str_trim(str_cut(&rest, ','));
        if (pattern.n == 0)
            continue;
        size_t k = hide_matching(&s, pattern);
        if (k == 0)
            return error_set(err, ERR_NOT_FOUND, 0,
                             "no symbol of the library is named \"%.*s\" (or one hidden twice)",
                             STR_FMT(pattern));
        hidden += k;
    }
    *ret_hidden = hidden;
    return 0;
}
