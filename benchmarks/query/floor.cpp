// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "benchmarks/query/pipeline.h"
#include "core/fail.h"

namespace headrace {
namespace {

// Memory for blocks in flight: twice the Mover's default bound per link, so that the ring is never
// the limit, and no more than a cache would use.
constexpr Bytes kRing = 32_MiB;

class Floor {
 public:
  Floor(const SourceContext& context, std::vector<const Object*> objects)
      : context_(context), objects_(std::move(objects)) {}

  Status allocate_ring() {
    const QueryScan& scan = context_.scan;
    const std::uint64_t wanted = kRing.value / scan.chunk_bytes().value + 1;
    slots_ = std::clamp<std::uint64_t>(scan.chunks(), 1, std::max<std::uint64_t>(wanted, 2));
    HEADRACE_TRY(ring_, allocate_for_cpus(context_.mover.machine(), scan.chunk_bytes() * slots_,
                                          Placement::on(context_.options.fast)));
    return {};
  }

  Status run() {
    const QueryScan& scan = context_.scan;
    Status outcome;
    for (std::uint64_t chunk = 0; chunk < scan.chunks() && outcome; ++chunk) {
      if (flights_.size() == slots_ * objects_.size()) outcome = land(objects_.size());
      if (outcome) start(chunk);
    }
    // Also after an error: the ring must not be freed while an engine writes to it.
    if (!outcome) {
      for (const Flight& flight : flights_) flight.transfer.cancel();
    }
    Status rest = land(flights_.size());
    return outcome ? rest : outcome;
  }

 private:
  struct Flight {
    Transfer transfer;
    const Object* object;
  };

  void start(std::uint64_t chunk) {
    const QueryScan& scan = context_.scan;
    std::uint64_t at = chunk % slots_ * scan.chunk_bytes().value;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      const Extent from = scan.block(*objects_[i], i, chunk);
      flights_.push_back({context_.mover.copy({ring_.get(), at, from.length}, from,
                                              {.priority = Priority::prefetch}),
                          objects_[i]});
      at += scan.chunk_rows * scan.columns[i].width;
    }
  }

  // Waits for the oldest `count` transfers, for all of them even if one fails.
  Status land(std::size_t count) {
    Status first;
    for (; count > 0; --count) {
      const Flight flight = std::move(flights_.front());
      flights_.pop_front();
      Status outcome = wait_for(flight.transfer, context_);
      if (!outcome && first) {
        first = Unexpected(name_file(std::move(outcome).error(), *flight.object, context_.scan));
      }
    }
    return first;
  }

  const SourceContext& context_;
  const std::vector<const Object*> objects_;
  std::uint64_t slots_ = 1;
  std::unique_ptr<Buffer> ring_;
  std::deque<Flight> flights_;
};

}  // namespace

Result<Nanoseconds> run_floor(SourceContext& context) {
  const QueryScan& scan = context.scan;
  ColumnBuffers columns;
  std::vector<const Object*> objects;
  for (const auto& file : scan.files) objects.push_back(file.get());
  if (!scan.slow_is_storage) {
    HEADRACE_TRY(columns, load_columns(context, context.options.slow));
    for (std::size_t i = 0; i < columns.size(); ++i) objects[i] = columns[i].get();
  }
  Floor floor(context, std::move(objects));
  HEADRACE_TRY_STATUS(floor.allocate_ring());
  if (scan.slow_is_storage) {
    HEADRACE_TRY([[maybe_unused]] const Bytes cached, make_cold(scan));
  }
  const Clock& clock = context.mover.clock();
  const Nanoseconds start = clock.now();
  HEADRACE_TRY_STATUS(floor.run());
  return clock.now() - start;
}

}  // namespace headrace
