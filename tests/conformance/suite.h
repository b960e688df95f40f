// SPDX-License-Identifier: Apache-2.0
// The promises of backend.h as tests that every backend passes. A backend joins with a short file
// that makes one Case or several:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance, testing::Values(Case{...}), case_name);
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/backend.h"

namespace headrace::conformance {

// An object to copy from or to, and a way around the backend to set and see its bytes.
class Side {
 public:
  virtual ~Side() = default;
  virtual const Object& object() const = 0;
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual std::vector<std::byte> read(std::uint64_t offset, std::size_t length) const = 0;
};

using MakeSide = std::function<std::unique_ptr<Side>(Bytes)>;

// Memory said to be on `node`.
MakeSide memory_on(NodeId node);
// A writable file in the current directory, opened against `machine`; removed at the end.
MakeSide file_of(const Machine& machine);

struct Case {
  std::string name;
  // nullptr: not on this machine, as `skipped` says.
  std::function<std::unique_ptr<Backend>()> open;
  EngineId engine;  // one of the backend's
  MakeSide source;
  MakeSide destination;
  std::string skipped = {};
};

inline std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class BackendConformance : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override;

  // Both sides of `length` with random bytes; the destination's differ from the source's.
  void make_sides(Bytes length);
  Piece piece(std::uint64_t from, std::uint64_t to, std::uint64_t length, std::uint64_t tag) const;
  // The destination holds what it held before, except where the pieces wrote.
  void expect_copied(std::span<const Piece> pieces) const;

  std::unique_ptr<Side> source_;
  std::unique_ptr<Side> destination_;
  std::vector<std::byte> source_bytes_;
  std::vector<std::byte> destination_bytes_;  // before
  std::unique_ptr<Backend> backend_;          // last: ends before the memory it writes to
};

// The promises about pieces that fail, for a backend that can be made to fail some by chance.
class FailingBackendConformance : public BackendConformance {};

}  // namespace headrace::conformance
