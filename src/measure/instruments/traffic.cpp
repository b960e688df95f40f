#include "measure/instruments/traffic.h"

#include <algorithm>

#include "core/check.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/traffic_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace::instruments {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

const Mix* find_mix(std::string_view name) {
  const auto found = std::ranges::find(kMixes, name, &Mix::name);
  return found == std::end(kMixes) ? nullptr : &*found;
}

TrafficArea divide(const Mix& mix, std::span<std::byte> memory) {
  const std::size_t pages = memory.size() / kPage;
  const std::size_t read_bytes = pages * mix.reads / mix.lines() * kPage;
  const std::size_t write_bytes = pages * mix.writes / mix.lines() * kPage;
  return {.from = memory.first(read_bytes), .to = memory.subspan(read_bytes, write_bytes)};
}

TrafficKernel::TrafficKernel(const Mix& mix, unsigned most_bits)
    : mix_(&mix), bits_(std::min(widest_vector_bits(), most_bits)) {
  const auto at = std::ranges::find(kMixes, mix.name, &Mix::name) - std::begin(kMixes);
  CHECK(static_cast<std::size_t>(at) < std::size(kMixes));
  loop_ = traffic_loop(static_cast<std::size_t>(at), bits_);
}

std::size_t TrafficKernel::groups(const TrafficArea& area) const {
  const std::size_t n = mixes_per_group(*mix_);
  std::size_t most = SIZE_MAX;
  if (mix_->reads > 0) most = area.from.size() / (kLine * n * mix_->reads);
  if (mix_->writes > 0) most = std::min(most, area.to.size() / (kLine * n * mix_->writes));
  return most;
}

std::size_t TrafficKernel::lines_per_group() const {
  return mix_->lines() * std::size_t{mixes_per_group(*mix_)};
}

std::size_t TrafficKernel::run(const TrafficArea& area, std::size_t first,
                               std::size_t count) const {
  DCHECK(first + count <= groups(area));
  const std::size_t n = mixes_per_group(*mix_);
  loop_(area.from.data() + first * kLine * n * mix_->reads,
        area.to.data() + first * kLine * n * mix_->writes, count);
  return count * lines_per_group();
}

void TrafficKernel::finish() const {
#if defined(__x86_64__)
  if (mix_->non_temporal) _mm_sfence();
#endif
}

}  // namespace headrace::instruments
