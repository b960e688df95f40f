// SPDX-License-Identifier: Apache-2.0
// Observes caches: counts as OpenMetrics text for Prometheus, the lives of blocks for Perfetto.
//
//   std::string page = openmetrics((*cache)->stats(), "weights");   // for GET /metrics
//
//   auto trace = CacheTrace::create("blocks.json");                 // open it at ui.perfetto.dev
//   auto cache = Cache::create(mover, {.budgets = budgets, .observer = (*trace)->observer()});
//   ...
//   (*trace)->close();                                              // after the cache
//
// The probe `headrace:block` (USDT; built where <sys/sdt.h> is installed) reports the same events
// as CacheOptions::observer without a change of the program, except hits without a lock. Arguments:
// the CacheEvent::Kind as a number, the object's address, the extent's offset and length.
// `bpftrace -e 'usdt:PROGRAM:headrace:block { @[arg0] = count(); }'` counts them.
//
// Cost: openmetrics() costs a call of stats(). A trace makes the cache call an observer, so it has
// one shard and each hit takes its lock. A probe that nobody uses is one nop.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/cache.h"
#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// An exposition of OpenMetrics 1.0, which ends with "# EOF". Each sample has the label
// cache="`cache`". Thread-safe.
std::string openmetrics(const CacheStats& stats, std::string_view cache = "cache");

// A file in the Trace Event Format of Chrome (JSON), which Perfetto and chrome://tracing open. Each
// block is a slice while it is filled, and one from then on until it is dropped; accesses are
// instants. Thread-safe.
class CacheTrace {
 public:
  // Replaces the file. Events that would make it longer than `most` are left out. Errors: absent,
  // denied, io: the file cannot be created.
  static Result<std::unique_ptr<CacheTrace>> create(const std::filesystem::path& path,
                                                    Bytes most = 256_MiB);
  // Calls close(). Its error is one line on stderr.
  ~CacheTrace();

  // For CacheOptions::observer. The CacheTrace must outlive the cache.
  std::function<void(const CacheEvent&)> observer();
  // Ends all slices and writes the rest. Later events are left out. A child of fork() writes
  // nothing. Errors: io: not all was written; exhausted: events were left out.
  Status close();

 private:
  class File;
  explicit CacheTrace(std::unique_ptr<File> file);
  const std::unique_ptr<File> file_;
};

}  // namespace HEADRACE_API headrace
