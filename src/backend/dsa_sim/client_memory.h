// A client's memory as the device sees it through the file of a queue: that of the process, and
// addresses beyond any process's memory at which the records of the file's own drains arrive.
//
// The kernel drains with a command of the device; the model has the operation only. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/dsa_device/dsa_device.h"
#include "core/mutex.h"
#include "headrace/units.h"

namespace headrace::dsa {

class ClientMemory final : public AddressSpace {
 public:
  explicit ClientMemory(std::unique_ptr<AddressSpace> process) : process_(std::move(process)) {}

  // The address of the record of drain `number`.
  static std::uint64_t record_of(std::uint64_t number) { return kOwn + number * sizeof(Record); }
  static bool is_own(std::uint64_t address) { return address >= kOwn && address < kEnd; }
  // Until the record of drain `number`, or a later one, arrived; false: not within `bound`.
  bool wait(std::uint64_t number, Nanoseconds bound);

  std::size_t read(std::uint64_t address, std::span<std::byte> to) override;
  std::size_t write(std::uint64_t address, std::span<const std::byte> from) override;
  std::size_t reach(std::uint64_t address, std::size_t size, Touch touch) override;
  bool resolve(std::uint64_t address, Touch touch) override;
  bool write_record(std::uint64_t address, const Record& record) override;

 private:
  // Not canonical on x86-64: no process has memory there.
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kEnd = std::uint64_t{1} << 63;

  // Immutable after construction.
  const std::unique_ptr<AddressSpace> process_;

  Mutex mutex_;
  CondVar arrived_;
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::dsa
