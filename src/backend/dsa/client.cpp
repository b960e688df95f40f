// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/client.h"

#include <algorithm>
#include <limits>

#include "backend/dsa/operation/cpu_operation.h"
#include "backend/dsa/queue/idle.h"
#include "backend/dsa/queue/pages.h"
#include "core/fail.h"

namespace headrace::dsa {
namespace {

bool has(const Operation& operation, std::uint32_t flags) {
  return (operation.flags & flags) == flags;
}

// What bytes lie in the address space at all.
bool in_reach(const Operation& operation) {
  return std::ranges::all_of(PartialOperation(operation).operands(), [](const Operand& operand) {
    return operand.bytes <= std::numeric_limits<std::uint64_t>::max() - operand.address;
  });
}

bool overlaps_itself(const Operation& operation) {
  return operation.source < operation.destination + operation.bytes &&
         operation.destination < operation.source + operation.bytes;
}

void cancel(std::span<Result<Outcome>> results) {
  for (Result<Outcome>& result : results) {
    result = fail(ErrorCode::cancelled, "not run: another operation of its program failed");
  }
}

// A device may name a place in front of the first difference (SPEC 8.3.5), a core never does.
Outcome exact(Operation operation, Outcome found) {
  if (kind_of(operation.opcode).finds != Finds::difference || found.result == 0) return found;
  advance(operation, std::min(found.value, operation.bytes));
  found.value += run_on_cpu(operation).value_or(Outcome{}).value;
  return found;
}

// What would crash a core is an error here too.
Result<Outcome> run_here(const Operation& operation) {
  HEADRACE_TRY_STATUS(
      bring_in(PartialOperation(operation), std::numeric_limits<std::uint64_t>::max()));
  return run_on_cpu(operation);
}

}  // namespace

Status check(const Operation& operation) {
  if (operation.opcode == Opcode::batch) {
    return fail(ErrorCode::invalid, "a batch is no operation of its own; run several operations");
  }
  if (!kind_of(operation.opcode).known) {
    return fail(ErrorCode::invalid, "opcode {:#04x} is not known here",
                static_cast<unsigned>(operation.opcode));
  }
  if (!in_reach(operation)) {
    return fail(ErrorCode::invalid, "{} bytes from there reach beyond all memory; check the sizes",
                operation.bytes);
  }
  const bool delta =
      operation.opcode == Opcode::create_delta || operation.opcode == Opcode::apply_delta;
  if (!delta) return {};
  const std::uint64_t odd =
      (operation.source | operation.destination | operation.delta | operation.bytes) % 8;
  if (odd != 0 || operation.bytes > PartialOperation::kMostDelta) {
    return fail(ErrorCode::invalid,
                "a delta needs addresses and a size that are multiples of 8, and at most 512 KiB");
  }
  return {};
}

// Where the results of operations that run at once go.
struct Client::Stage {
  std::span<const Operation> operations;
  std::span<Result<Outcome>> results;
  std::atomic<std::size_t> left;
};

Result<std::unique_ptr<Client>> Client::open(const Device& device, const QueueOptions& options) {
  HEADRACE_TRY(OpenDevice opened, OpenDevice::open(device, options));
  return std::unique_ptr<Client>(new Client(device.capabilities, std::move(opened)));
}

Client::Client(const GeneralCapabilities& capabilities, OpenDevice device)
    : capabilities_(capabilities), device_(std::move(device)), opcodes_(device_.operations()) {}

Client::~Client() {
  if (!origin_.here()) abandon(std::move(device_));
}

// By what the device says of itself, never by its model.
bool Client::can(const Operation& operation) const {
  const OperationKind& kind = kind_of(operation.opcode);
  if (!opcodes_.has(operation.opcode) || !origin_.here()) return false;
  if (!kind.known || (kind.sized && operation.bytes == 0)) return false;
  if (kind.one_piece && operation.bytes > device_.max_transfer()) return false;
  switch (operation.opcode) {
    case Opcode::memmove: return capabilities_.overlap() || !overlaps_itself(operation);
    case Opcode::fill: return capabilities_.fill16() || !has(operation, flag::pattern16);
    case Opcode::crc:
    case Opcode::copy_crc: return capabilities_.crc64() || !has(operation, flag::crc64);
    // SPEC 8.3: both destinations at the same place in their pages.
    case Opcode::dualcast: return operation.destination % 4096 == operation.destination2 % 4096;
    // SPEC 8.3.8: a device wants room for 8 deltas.
    case Opcode::create_delta: return operation.delta_bytes >= 80;
    case Opcode::apply_delta: return operation.delta_bytes > 0;
    default: return true;
  }
}

std::vector<Result<Outcome>> Client::run(std::span<const Operation> program) {
  std::vector<Result<Outcome>> results(program.size());
  if (!std::ranges::all_of(program, [](const auto& each) { return check(each).has_value(); })) {
    cancel(results);
    for (std::size_t i = 0; i < program.size(); ++i) {
      Status checked = check(program[i]);
      if (!checked) results[i] = Unexpected(std::move(checked).error());
    }
    return results;
  }
  for (std::size_t begin = 0; begin < program.size();) {
    std::size_t end = begin + 1;
    while (end < program.size() && !program[end].fenced()) ++end;
    const auto stage = std::span(results).subspan(begin, end - begin);
    run_stage(program.subspan(begin, end - begin), stage);
    begin = end;
    if (std::ranges::all_of(stage, [](const auto& result) { return result.has_value(); })) continue;
    cancel(std::span(results).subspan(end));
    break;
  }
  return results;
}

Result<Outcome> Client::run(const Operation& operation) { return run({&operation, 1}).front(); }

void Client::run_stage(std::span<const Operation> operations, std::span<Result<Outcome>> results) {
  Stage stage{operations, results, operations.size()};
  std::vector<Submission> submissions;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Operation operation = operations[i];
    operation.flags &= ~flag::fence;  // kept by stages
    if (can(operation)) {
      if (!capabilities_.cache_control() || !kind_of(operation.opcode).cached) {
        operation.flags &= ~flag::to_cache;
      }
      submissions.push_back({.operation = operation, .tag = i, .owner = &stage});
      continue;
    }
    ++unable_;
    results[i] = run_here(operation);
    --stage.left;
  }
  for (std::span<const Submission> rest(submissions); !rest.empty();) {
    auto taken = device_.submit(rest);
    if (!taken) {
      // No queue answers any more: what is not yet in one is done here.
      for (const Submission& order : rest) {
        results[order.tag] = finish_here(PartialOperation(order.operation));
        --stage.left;
      }
      break;
    }
    rest = rest.subspan(*taken);
    if (!rest.empty()) poll();
  }
  // OpenDevice give up after their limit, so that this ends.
  while (stage.left > 0) poll();
}

void Client::poll() {
  std::vector<Ended> ended;
  device_.poll(ended);
  if (ended.empty()) {
    idle_briefly();
    return;
  }
  for (Ended& each : ended) {
    Stage& stage = *static_cast<Stage*>(each.owner);
    Result<Outcome>& result = stage.results[each.tag];
    Failure* const failure = each.failure.get();
    if (failure == nullptr) {
      ++by_device_;
      result = exact(stage.operations[each.tag], each.outcome);
    } else if (failure->why.code == ErrorCode::invalid ||
               (failure->undefined && !failure->rest.repeatable())) {
      result = Unexpected(std::move(failure->why));
    } else {
      result = finish_here(std::move(failure->rest));
    }
    --stage.left;
  }
}

Result<Outcome> Client::finish_here(PartialOperation work) {
  ++given_back_;
  while (const auto rest = work.rest()) {
    HEADRACE_TRY(const Outcome found, run_here(*rest));
    work.add(found);
  }
  return work.outcome();
}

DsaStats Client::stats() const {
  const std::uint64_t unable = unable_.load();
  const std::uint64_t given_back = given_back_.load();
  return {.by_device = by_device_.load(),
          .by_cpu = unable + given_back,
          .unable = unable,
          .given_back = given_back};
}

}  // namespace headrace::dsa
