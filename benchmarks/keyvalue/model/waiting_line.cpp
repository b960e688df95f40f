// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/waiting_line.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "headrace/random.h"
#include "headrace/statistics.h"

namespace headrace::kv_bench {

Latencies wait_in_line(const Served& served, const Shares& shares, unsigned threads,
                       const LineOptions& options) {
  using Times = std::priority_queue<double, std::vector<double>, std::greater<>>;
  const std::vector<double> at_once(threads), asked(options.clients);
  Times free(std::greater<>{}, at_once), clients(std::greater<>{}, asked);
  Random random(options.seed);
  std::vector<double> waited;
  for (std::uint64_t i = 0; i < options.operations; ++i) {
    const double from = clients.top(), start = std::max(from, free.top());
    clients.pop();
    free.pop();
    const double where = random.unit();
    const double takes = where < shares.ssd                 ? served.ssd_ns
                         : where < shares.ssd + shares.slow ? served.slow_ns
                                                            : served.fast_ns;
    waited.push_back(start + takes - from);
    clients.push(start + takes);
    free.push(start + takes);
  }
  return {*quantile(waited, 0.5) / 1e3, *quantile(waited, 0.99) / 1e3};
}

}  // namespace headrace::kv_bench
