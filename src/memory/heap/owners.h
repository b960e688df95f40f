// SPDX-License-Identifier: Apache-2.0
// A table from page to owning heap and to the size class of the page's objects. It serves every
// free() that does not name a heap.
//
//  1. The tables form a tree over the pages of 48-bit addresses. They are added by compare and swap
//     and never freed, so a pointer to a table stays valid.
//  2. A heap's pages are entered before an object in them is handed out, and removed after the last
//     object was freed. An address of a live object therefore finds its heap.
//  3. A page has a use while objects that begin in it are live: the use of the first object, or
//     `several` once objects of two uses are live. A live object finds its own use or `several`.
//  4. An address that belongs to no live object finds nullptr or any heap.
//  5. A child of fork() finds no heap for pages that are not in its memory: other memory may be
//     mapped there later, and no heap may claim it.
//
// Thread-safe. Lock-free, except for the functions that point 5 needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

class Heap;

// The kind of objects that begin in a page.
enum class PageUse : std::uint8_t {
  none,     // no objects
  several,  // of different sizes, or above the largest size class
  large,    // one object, in a buffer of its own
  classes,  // size class 0 (thread_cache.h); classes + c: size class c
};
constexpr PageUse use_of_class(std::size_t size_class) {
  return static_cast<PageUse>(static_cast<std::size_t>(PageUse::classes) + size_class);
}

struct PageOwner {
  Heap* heap = nullptr;  // nullptr: owned by no heap
  PageUse use = PageUse::none;

  bool has_class() const { return use >= PageUse::classes; }
  // Requires: has_class().
  std::size_t size_class() const {
    return static_cast<std::size_t>(use) - static_cast<std::size_t>(PageUse::classes);
  }
};

// Makes a child of fork() find no owner for these pages, until forget_parents_pages(). Call it
// before an owner is entered. A fork() then writes 8 bytes per page in the child, as long as
// entering the pages took.
void tell_parents_pages(std::span<const std::byte> range);
// Call it after the owner was removed. Requires: tell_parents_pages(range) in this process.
void forget_parents_pages(std::span<const std::byte> range);

// Enters `heap` as the owner of each 4 KiB page that `range` touches; nullptr removes the owner.
void set_owner(std::span<const std::byte> range, Heap* heap, PageUse use = PageUse::none);

// Record that an object of this use is about to be handed out, or was freed. Large objects are not
// recorded. Requires: the object's page has an owner.
void note_out(const void* object, PageUse use);
void note_back(const void* object);

PageOwner owner_of(const void* address);

}  // namespace headrace
