// SPDX-License-Identifier: Apache-2.0
// Puts the large static arrays of a program that was not written for it on other pages, before its
// main() begins: loaded by LD_PRELOAD, asked by HEADRACE_PAGES.
//
//   huge         asks for huge pages for them (madvise)
//   small        forbids them
//   mapped       puts a fresh mapping in their place, without huge pages
//   mapped-huge  the same, with huge pages
//
// It changes what lies between the first and the last whole 2 MiB of the program's own data, which
// is zero then: arrays without an initial value. For experiments (explain.py), not for programs.
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const uintptr_t kHuge = 2 << 20;

static int change(struct dl_phdr_info* program, size_t size, void* wanted) {
  const char* how = wanted;
  (void)size;
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &program->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_W)) continue;
    const uintptr_t zeros = program->dlpi_addr + part->p_vaddr + part->p_filesz;
    // The first page has small things beside the arrays, as the C library's stdout.
    const uintptr_t begin = (zeros + 4096 + kHuge - 1) / kHuge * kHuge;
    const uintptr_t end = (program->dlpi_addr + part->p_vaddr + part->p_memsz) / kHuge * kHuge;
    if (begin >= end) continue;
    void* arrays = (void*)begin;
    if (strncmp(how, "mapped", 6) == 0) {
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      if (mmap(arrays, end - begin, PROT_READ | PROT_WRITE, flags, -1, 0) != arrays) abort();
    }
    madvise(arrays, end - begin, strstr(how, "huge") != NULL ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  return 1;  // only the program itself, which comes first
}

__attribute__((constructor)) static void before_main(void) {
  const char* how = getenv("HEADRACE_PAGES");
  if (how != NULL) dl_iterate_phdr(change, (void*)how);
}
