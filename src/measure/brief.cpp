#include <algorithm>
#include <iterator>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/measure.h"
#include "measure/steps.h"
#include "measure/team.h"

namespace headrace {
namespace {

// After it, steps that may be left out are: with many nodes there are more pairs of them than a few
// seconds hold. The disk comes before the pairs, so that one of each kind is always there.
constexpr Nanoseconds kBudget = std::chrono::seconds{4};

void append(std::vector<Step>& all, std::vector<Step> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace

Result<std::vector<RateRow>> measure_briefly(Machine& machine, const Backends& backends,
                                             const std::filesystem::path& directory,
                                             const ExperimentContext& context) {
  HEADRACE_TRY_STATUS(check_is_here(machine));
  // Chosen before anything is timed: the race takes longer than a sample.
  (void)chosen_copy_kernel();
  std::vector<Step> steps = memory_steps(machine);
  append(steps, disk_steps());
  append(steps, core_steps(machine, backends));
  Brief brief{.machine = machine, .backends = backends, .directory = directory, .rows = {}};
  const Nanoseconds start = system_clock().now();
  for (std::size_t done = 0; done < steps.size() && !context.stop(); ++done) {
    const Step& step = steps[done];
    if (step.left_out && system_clock().now() - start > kBudget) {
      brief.rows.push_back(row_without(step.left_out(), "left out to stay brief"));
    } else {
      step.run(brief);
    }
    context.progress(done + 1, steps.size());
  }
  return std::move(brief.rows);
}

}  // namespace headrace
