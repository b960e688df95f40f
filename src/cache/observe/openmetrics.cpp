// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>

#include "headrace/cache/observe.h"

namespace headrace {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result;
}

class Page {
 public:
  explicit Page(std::string_view cache) : label_(fmt::format("cache=\"{}\"", escaped(cache))) {}

  void family(std::string_view name, std::string_view type, std::string_view help,
              std::string_view unit = "") {
    name_ = name;
    add("# TYPE headrace_cache_{} {}\n", name, type);
    if (!unit.empty()) add("# UNIT headrace_cache_{} {}\n", name, unit);
    add("# HELP headrace_cache_{} {}\n", name, help);
  }
  void sample(std::string_view suffix, std::uint64_t value, std::string_view more = "") {
    add("headrace_cache_{}{}{{{}{}}} {}\n", name_, suffix, label_, more, value);
  }
  void count(std::string_view name, std::string_view help, std::uint64_t value,
             std::string_view unit = "") {
    family(name, "counter", help, unit);
    sample("_total", value);
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value,
             std::string_view unit = "") {
    family(name, "gauge", help, unit);
    sample("", value);
  }
  void summary(std::string_view name, std::string_view help,
               const CacheStats::Percentiles& percentiles) {
    family(name, "summary", help, "seconds");
    quantile("0.5", percentiles.p50);
    quantile("0.9", percentiles.p90);
    quantile("0.99", percentiles.p99);
    sample("_count", percentiles.count);
  }
  std::string end() && {
    add("# EOF\n");
    return std::move(text_);
  }

 private:
  template <class... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<T>(values)...);
  }
  void quantile(std::string_view which, std::optional<std::uint64_t> nanoseconds) {
    if (!nanoseconds) return;
    add("headrace_cache_{}{{{},quantile=\"{}\"}} {:.9g}\n", name_, label_, which,
        static_cast<double>(*nanoseconds) / 1e9);
  }

  std::string text_;
  std::string label_;
  std::string name_;
};

void add_tenants(Page& page, const std::vector<CacheStats::Tenant>& tenants) {
  if (tenants.empty()) return;
  const auto each = [&](const char* suffix, const char* more, auto&& value) {
    for (const CacheStats::Tenant& tenant : tenants) {
      page.sample(suffix, value(tenant),
                  fmt::format(",tenant=\"{}\"{}", escaped(tenant.name), more));
    }
  };
  page.family("tenant_accesses", "counter", "Accesses of a tenant, by the state of the copy.");
  each("_total", ",state=\"ready\"", [](const auto& tenant) { return tenant.hits; });
  each("_total", ",state=\"other\"", [](const auto& tenant) { return tenant.misses; });
  page.family("tenant_evictions", "counter", "Copies of a tenant dropped for space.");
  each("_total", "", [](const auto& tenant) { return tenant.evictions; });
  page.family("tenant_used_bytes", "gauge", "Bytes of a tenant's copies.", "bytes");
  each("", "", [](const auto& tenant) { return tenant.bytes_used.value; });
  page.family("tenant_pinned_bytes", "gauge", "Bytes of a tenant's copies in use.", "bytes");
  each("", "", [](const auto& tenant) { return tenant.bytes_pinned.value; });
}

}  // namespace

std::string openmetrics(const CacheStats& stats, std::string_view cache) {
  Page page(cache);
  page.family("accesses", "counter", "Accesses, by the state of the copy.");
  page.sample("_total", stats.hits, ",state=\"ready\"");
  page.sample("_total", stats.inflight_hits, ",state=\"filling\"");
  page.sample("_total", stats.misses, ",state=\"absent\"");
  page.count("prefetched", "Copies started by plans.", stats.prefetched);
  page.count("prefetched_used", "Prefetched copies used.", stats.first_uses);
  page.count("prefetched_late", "Prefetched copies used before they were ready.", stats.late);
  page.count("wasted_bytes", "Bytes prefetched and dropped without a use.",
             stats.wasted_bytes.value, "bytes");
  page.count("evictions", "Copies dropped for space.", stats.evictions);
  page.count("promotions", "Blocks moved to the first memory of a chain.", stats.promotions);
  page.count("demotions", "Blocks moved to a further memory of a chain.", stats.demotions);
  page.count("invalidations", "Copies dropped because the source changed.", stats.invalidations);
  page.count("failures", "Copies that failed.", stats.failures);
  page.count("refusals", "Accesses without space for a copy, or held for writing by others.",
             stats.refusals);
  page.count("written_back", "Write-backs that succeeded.", stats.written_back);
  page.count("write_failures", "Write-backs that failed.", stats.write_failures);
  page.count("slab_failures", "Slabs that a node did not give.", stats.slab_failures);
  page.gauge("used_bytes", "Bytes of all copies.", stats.bytes_used.value, "bytes");
  page.gauge("dirty_bytes", "Bytes newer than their source.", stats.bytes_dirty.value, "bytes");
  page.gauge("pinned_bytes", "Bytes of copies in use.", stats.bytes_pinned.value, "bytes");
  page.gauge("blocks", "Copies.", stats.blocks);
  add_tenants(page, stats.tenants);
  page.summary("wait_seconds", "Waits for a copy.", stats.wait_time);
  page.summary("copy_seconds", "Copies, from start to ready.", stats.copy_latency);
  return std::move(page).end();
}

}  // namespace headrace
