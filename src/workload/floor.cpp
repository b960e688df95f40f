// The floor of a query's transfer: its blocks moved with as many in flight as the Mover lets
// through, and nothing else done.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "headrace/query.h"
#include "workload/pipeline.h"
#include "workload/plan.h"
#include "workload/sources.h"

namespace headrace {
namespace {

// Room for what is in flight: twice the Mover's default bound per link, so that the ring never is
// what limits it, and no more than a cache would use.
constexpr Bytes kRing = 32_MiB;

class Floor {
 public:
  Floor(const SourceContext& context, std::vector<const Object*> objects)
      : context_(context), objects_(std::move(objects)) {}

  Status allocate_ring() {
    const QueryPlan& plan = context_.plan;
    const std::uint64_t wanted = kRing.value / plan.chunk_bytes().value + 1;
    slots_ = std::clamp<std::uint64_t>(plan.chunks(), 1, std::max<std::uint64_t>(wanted, 2));
    HEADRACE_TRY(ring_, allocate(context_.mover.machine(), plan.chunk_bytes() * slots_,
                                 Placement::on(context_.options.fast)));
    return {};
  }

  Status run() {
    const QueryPlan& plan = context_.plan;
    Status outcome;
    for (std::uint64_t chunk = 0; chunk < plan.chunks() && outcome; ++chunk) {
      if (flights_.size() == slots_ * objects_.size()) outcome = land(objects_.size());
      if (outcome) start(chunk);
    }
    // Also after an error: the ring must not go while something is written to it.
    Status rest = land(flights_.size());
    return outcome ? rest : outcome;
  }

 private:
  struct Flight {
    Transfer transfer;
    const Object* object;
  };

  void start(std::uint64_t chunk) {
    const QueryPlan& plan = context_.plan;
    std::uint64_t at = chunk % slots_ * plan.chunk_bytes().value;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      const Extent from = plan.block(*objects_[i], i, chunk);
      flights_.push_back({context_.mover.copy({ring_.get(), at, from.length}, from,
                                              {.priority = Priority::prefetch}),
                          objects_[i]});
      at += plan.chunk_rows * plan.columns[i].width;
    }
  }

  // Waits for the oldest `count` transfers, all of them even when one fails.
  Status land(std::size_t count) {
    Status first;
    for (; count > 0; --count) {
      const Flight flight = std::move(flights_.front());
      flights_.pop_front();
      Status outcome = wait_for(flight.transfer, context_.stop);
      if (!outcome && first) {
        first =
            std::unexpected(name_file(std::move(outcome).error(), *flight.object, context_.plan));
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

Result<Nanoseconds> measure_transfer_floor(const Table& table, Mover& mover,
                                           const QueryOptions& options) {
  HEADRACE_TRY(const QueryPlan plan, make_plan(table, mover.machine(), options));
  StopFlag stop(options.stop);
  const SourceContext context{plan, options, mover, [&stop] { return stop(); }};
  ColumnBuffers columns;
  std::vector<const Object*> objects(plan.files.begin(), plan.files.end());
  if (!plan.slow_is_storage) {
    HEADRACE_TRY(columns, load_columns(context, options.slow));
    for (std::size_t i = 0; i < columns.size(); ++i) objects[i] = columns[i].get();
  }
  Floor floor(context, std::move(objects));
  HEADRACE_TRY_STATUS(floor.allocate_ring());
  if (plan.slow_is_storage) {
    HEADRACE_TRY([[maybe_unused]] const Bytes cached, make_cold(plan));
  }
  const Nanoseconds start = mover.clock().now();
  HEADRACE_TRY_STATUS(floor.run());
  return mover.clock().now() - start;
}

}  // namespace headrace
