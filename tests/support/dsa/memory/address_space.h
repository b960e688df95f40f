// SPDX-License-Identifier: Apache-2.0
// The memory of a client as an emulated device reaches it: by address, with pages that may be
// missing. What a PASID stands for on a real machine.
//
// Nothing here crashes on a bad address: what cannot be reached is a fault, as for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "core/mutex.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

inline constexpr std::uint64_t kPage = 4096;

enum class Touch : std::uint8_t { read, write };

// Thread-safe: the engines of a device call it at once. A fault is a count smaller than
// requested: the next byte is on a page that is not present, or not permitted.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  // Copies from there; returns how many bytes, from the front.
  virtual std::size_t read(std::uint64_t address, std::span<std::byte> to) = 0;
  // Copies to there; returns how many bytes, from the front. Those after them are unchanged.
  virtual std::size_t write(std::uint64_t address, std::span<const std::byte> from) = 0;
  // The result that read() or write() would return, without moving anything.
  virtual std::size_t reach(std::uint64_t address, std::size_t size, Touch touch) = 0;

  // A page request (SPEC 3.13): asks the system for the page of `address`. False: refused; true: it
  // is there now, for `touch`.
  virtual bool resolve(std::uint64_t address, Touch touch) = 0;

  // Whether there is no data, only descriptors and records: a copy then moves nothing and takes no
  // work, for models of time.
  virtual bool imaginary() const { return false; }

  // Writes bytes 1 to 31, then the status: whoever sees it with acquire sees what the operation
  // wrote before. False: not accessible, and the status is unchanged. This one does it by two
  // write()s.
  virtual bool write_record(std::uint64_t address, const Record& record);
};

// Memory of this process, for tests: only what was added, with faults where a test wants them.
//
// Pages are those of addresses, kPage large. Thread-safe, but what is removed, or hidden, must not
// be under a descriptor that executes.
class DirectMemory final : public AddressSpace {
 public:
  // May be accessed from now on. The memory outlives this object, or its removal.
  void add(std::span<std::byte> memory, bool writable = true);
  template <class T>
  void add(T& object) {
    add(std::as_writable_bytes(std::span(&object, 1)));
  }
  void remove(std::span<std::byte> memory);

  // The pages that hold bytes of `memory` are not present until resolved. Touch::write: they are,
  // but a write faults until one is resolved (copy on write).
  void hide(std::span<const std::byte> memory, Touch touch = Touch::read);
  // They are never accessible, and page requests for them are refused.
  void forbid(std::span<const std::byte> memory);
  // Makes all added memory present and permitted again.
  void show_all();
  // From now on page requests are refused.
  void refuse_requests(bool refused);

  // Pages resolved so far, by resolve(): of a device, or of a test that does what a CPU's touch
  // would do.
  std::uint64_t resolved() const;

  std::size_t read(std::uint64_t address, std::span<std::byte> to) override;
  std::size_t write(std::uint64_t address, std::span<const std::byte> from) override;
  std::size_t reach(std::uint64_t address, std::size_t size, Touch touch) override;
  bool resolve(std::uint64_t address, Touch touch) override;
  bool touch(const void* address, Touch touch) { return resolve(number(address), touch); }
  bool write_record(std::uint64_t address, const Record& record) override;

  static std::uint64_t number(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

 private:
  struct Mapping {
    std::uint64_t end;
    bool writable;
  };
  const Mapping* find(std::uint64_t address) const REQUIRES(mutex_);
  bool page_there(std::uint64_t page, Touch touch) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint64_t, Mapping> mappings_ GUARDED_BY(mutex_);  // by their begin
  std::set<std::uint64_t> absent_ GUARDED_BY(mutex_);
  std::set<std::uint64_t> unwritable_ GUARDED_BY(mutex_);
  std::set<std::uint64_t> forbidden_ GUARDED_BY(mutex_);
  bool refusing_ GUARDED_BY(mutex_) = false;
  std::uint64_t resolved_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::emulator
