// SPDX-License-Identifier: Apache-2.0
// Which heap a page belongs to and what objects it has, asked for each object that is freed without
// saying where it is from.
//
//  1. The tables form a tree over the pages of 48-bit addresses. They are added by compare and swap
//     and never freed: who has read a pointer to one may use it.
//  2. The pages of a heap are entered before an object in them is handed out, and taken out after
//     the last was freed. Whoever has an object was handed it, so it finds the object's heap.
//  3. A page has a use while objects that begin in it are out: the first one's, or `several` once
//     one of another use was there. Whoever has an object finds its own use or that.
//  4. Nothing else is promised: an address that is no object's finds nullptr or any heap.
//  5. A child of fork() finds no heap for pages whose memory it does not have: something else may
//     come to lie there, which no heap may take for its own.
//
// Thread-safe, without locks but for those that 5. takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

class Heap;

// What the objects are that begin in a page.
enum class PageUse : std::uint8_t {
  none,     // there is none
  several,  // of different sizes, or larger than those with a class
  large,    // one, a buffer of its own
  classes,  // all of size class 0 (thread_cache.h); classes + c: of class c
};
constexpr PageUse use_of_class(std::size_t size_class) {
  return static_cast<PageUse>(static_cast<std::size_t>(PageUse::classes) + size_class);
}

struct PageOwner {
  Heap* heap = nullptr;  // nullptr: no heap's
  PageUse use = PageUse::none;

  bool has_class() const { return use >= PageUse::classes; }
  // Requires: has_class().
  std::size_t size_class() const {
    return static_cast<std::size_t>(use) - static_cast<std::size_t>(PageUse::classes);
  }
};

// From here on a child made by fork() finds no owner of these pages; until forget_parents_pages().
// To be told of before an owner is entered, and forgotten after it was taken out. A child's fork()
// takes as long as entering them did: 8 bytes are written for each page.
void tell_parents_pages(std::span<const std::byte> range);
// Requires: told of, in this process.
void forget_parents_pages(std::span<const std::byte> range);

// Enters `heap` as the owner of all pages (4 KiB) that `range` touches; nullptr takes them out.
void set_owner(std::span<const std::byte> range, Heap* heap, PageUse use = PageUse::none);

// An object of this use is about to be handed out, or has come back. Requires: its page has an
// owner; of large ones nothing is noted.
void note_out(const void* object, PageUse use);
void note_back(const void* object);

PageOwner owner_of(const void* address);

}  // namespace headrace
