// SPDX-License-Identifier: Apache-2.0
#include "headrace/dsa_operations.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "backend/dsa/client.h"
#include "backend/dsa/queue/character_device.h"
#include "core/fail.h"

namespace headrace {
namespace {

using dsa::Opcode;
using dsa::Operation;
using ConstBytes = std::span<const std::byte>;

// A word's number and the word.
constexpr std::size_t kDeltaBytes = 10;
// The size of a record of all words of the largest delta.
constexpr std::size_t kMostRecord = dsa::PartialOperation::kMostDelta / 8 * kDeltaBytes;

std::uint64_t start_of(ConstBytes bytes) { return reinterpret_cast<std::uintptr_t>(bytes.data()); }

Status same_length(ConstBytes first, std::initializer_list<ConstBytes> others) {
  for (const ConstBytes& other : others) {
    if (other.size() == first.size()) continue;
    return fail(ErrorCode::invalid, "ranges of {} and {} bytes; give those of one length",
                first.size(), other.size());
  }
  return {};
}

// What a client is told, but for flags that all operations have.

Result<Operation> lowered(const dsa::Copy& what) {
  HEADRACE_TRY_STATUS(same_length(what.to, {what.from}));
  return Operation{.opcode = Opcode::memmove,
                   .source = start_of(what.from),
                   .destination = start_of(what.to),
                   .bytes = what.to.size()};
}

Result<Operation> lowered(const dsa::Dualcast& what) {
  HEADRACE_TRY_STATUS(same_length(what.to, {what.and_to, what.from}));
  return Operation{.opcode = Opcode::dualcast,
                   .source = start_of(what.from),
                   .destination = start_of(what.to),
                   .destination2 = start_of(what.and_to),
                   .bytes = what.to.size()};
}

Result<Operation> lowered(const dsa::Fill& what) {
  return Operation{.opcode = Opcode::fill,
                   .destination = start_of(what.to),
                   .bytes = what.to.size(),
                   .pattern = {what.pattern, what.and_pattern.value_or(0)},
                   .flags = what.and_pattern ? dsa::flag::pattern16 : 0};
}

Result<Operation> lowered(const dsa::Compare& what) {
  HEADRACE_TRY_STATUS(same_length(what.bytes, {what.with}));
  return Operation{.opcode = Opcode::compare,
                   .source = start_of(what.bytes),
                   .destination = start_of(what.with),
                   .bytes = what.bytes.size()};
}

Result<Operation> lowered(const dsa::ComparePattern& what) {
  return Operation{.opcode = Opcode::compare_pattern,
                   .source = start_of(what.bytes),
                   .bytes = what.bytes.size(),
                   .pattern = {what.pattern}};
}

Result<Operation> lowered(const dsa::Crc32c& what) {
  return Operation{.opcode = Opcode::crc,
                   .source = start_of(what.bytes),
                   .bytes = what.bytes.size(),
                   .seed = what.seed};
}

Result<Operation> lowered(const dsa::CopyCrc32c& what) {
  HEADRACE_TRY_STATUS(same_length(what.to, {what.from}));
  return Operation{.opcode = Opcode::copy_crc,
                   .source = start_of(what.from),
                   .destination = start_of(what.to),
                   .bytes = what.to.size(),
                   .seed = what.seed};
}

Result<Operation> lowered(const dsa::CreateDelta& what) {
  HEADRACE_TRY_STATUS(same_length(what.old, {what.changed}));
  return Operation{
      .opcode = Opcode::create_delta,
      .source = start_of(what.old),
      .destination = start_of(what.changed),
      .bytes = what.old.size(),
      .delta = start_of(what.record),
      .delta_bytes = static_cast<std::uint32_t>(std::min(what.record.size(), kMostRecord))};
}

Result<Operation> lowered(const dsa::ApplyDelta& what) {
  if (what.record.size() % kDeltaBytes != 0 || what.record.size() > kMostRecord) {
    return fail(ErrorCode::invalid, "{} bytes are no delta record; give what CreateDelta wrote",
                what.record.size());
  }
  return Operation{.opcode = Opcode::apply_delta,
                   .destination = start_of(what.to),
                   .bytes = what.to.size(),
                   .delta = start_of(what.record),
                   .delta_bytes = static_cast<std::uint32_t>(what.record.size())};
}

Result<Operation> lowered(const dsa::Flush& what) {
  return Operation{.opcode = Opcode::cache_flush,
                   .destination = start_of(what.bytes),
                   .bytes = what.bytes.size()};
}

bool meet(const dsa::Operand& a, const dsa::Operand& b) {
  return a.bytes > 0 && b.bytes > 0 && a.address < b.address + b.bytes &&
         b.address < a.address + a.bytes;
}

// Whether it writes to what it reads, or writes something twice.
bool meets_itself(const Operation& operation) {
  const auto all = dsa::PartialOperation(operation).operands();
  for (const dsa::Operand& written : all) {
    for (const dsa::Operand& other : all) {
      if (written.written && &written != &other && meet(written, other)) return true;
    }
  }
  return false;
}

Result<Operation> lowered(const DsaOperation& operation) {
  HEADRACE_TRY(Operation made,
               std::visit([](const auto& what) { return lowered(what); }, operation.what));
  if (made.opcode != Opcode::memmove && meets_itself(made)) {
    return fail(ErrorCode::invalid, "ranges of one {} overlap; only those of a copy may",
                to_string(made.opcode));
  }
  HEADRACE_TRY_STATUS(dsa::check(made));
  if (operation.fenced) made.flags |= dsa::flag::fence;
  // To a flush it would mean to leave the lines where they are.
  const bool keep = operation.hint == CopyHint::keep && made.opcode != Opcode::cache_flush;
  if (keep) made.flags |= dsa::flag::to_cache;
  return made;
}

DsaOutcome raised(const Operation& operation, const dsa::Outcome& found) {
  DsaOutcome outcome;
  switch (dsa::kind_of(operation.opcode).finds) {
    case dsa::Finds::nothing: break;
    case dsa::Finds::difference:
      if (found.result != 0) outcome.difference = found.value;
      break;
    case dsa::Finds::crc: outcome.crc = static_cast<std::uint32_t>(found.value); break;
    case dsa::Finds::delta:
      if (found.result == 2) break;
      outcome.delta = ConstBytes(reinterpret_cast<const std::byte*>(operation.delta), found.value);
      break;
  }
  return outcome;
}

}  // namespace

DsaClient::DsaClient() : client_(std::make_unique<dsa::Client>()) {}
DsaClient::DsaClient(std::unique_ptr<dsa::Client> client) : client_(std::move(client)) {}
DsaClient::DsaClient(DsaClient&& other) noexcept = default;
DsaClient& DsaClient::operator=(DsaClient&& other) noexcept = default;
DsaClient::~DsaClient() = default;

Result<DsaClient> DsaClient::open(std::string_view device) {
  const auto devices = dsa::find_devices(dsa::Roots::from_environment());
  const auto found = std::ranges::find(devices, device, &dsa::Device::name);
  if (found == devices.end()) {
    return fail(ErrorCode::absent, "no device '{}' here; see headrace doctor", device);
  }
  const auto portal = [](const dsa::WorkQueue& queue) { return dsa::open_character_device(queue); };
  HEADRACE_TRY(auto client, dsa::Client::open(*found, {.open = portal}));
  return DsaClient(std::move(client));
}

std::vector<Result<DsaOutcome>> DsaClient::run(std::span<const DsaOperation> program) {
  std::vector<Result<DsaOutcome>> results(program.size());
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < program.size(); ++i) {
    auto made = lowered(program[i]);
    if (made) {
      operations.push_back(*made);
    } else {
      results[i] = Unexpected(std::move(made).error());
    }
  }
  if (operations.size() < program.size()) {
    for (Result<DsaOutcome>& result : results) {
      if (!result) continue;
      result = fail(ErrorCode::cancelled, "not run: another operation of its program is invalid");
    }
    return results;
  }
  auto found = client_->run(operations);
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (found[i]) {
      results[i] = raised(operations[i], *found[i]);
    } else {
      results[i] = Unexpected(std::move(found[i]).error());
    }
  }
  return results;
}

Result<DsaOutcome> DsaClient::run(const DsaOperation& operation) {
  return std::move(run({&operation, 1}).front());
}

DsaStats DsaClient::stats() const { return client_->stats(); }

static_assert(std::is_nothrow_move_constructible_v<DsaClient>);

}  // namespace headrace
