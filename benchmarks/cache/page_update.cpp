// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/page_update.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "benchmarks/cache/draws.h"
#include "benchmarks/cache/stores/headrace_store.h"
#include "benchmarks/cache/stores/page_pool.h"
#include "benchmarks/cache/stores/store.h"
#include "benchmarks/cache/timing.h"
#include "core/fail.h"
#include "headrace/histogram.h"

namespace headrace::cache_bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kPage = 8192;
constexpr std::uint64_t kLeaves = 40'960;
constexpr Bytes kBudget = 32_MiB;
constexpr std::uint64_t kFanOut = 256;
constexpr std::uint64_t kUpdateOneIn = 10;
constexpr std::uint64_t kCounter = kPage / 2;  // its offset in a leaf
constexpr std::uint64_t kLeafDraws = 1 << 19;
constexpr std::uint64_t kRoot = 0;

std::uint64_t counter_in(const std::byte* page) {
  std::uint64_t counter = 0;
  std::memcpy(&counter, page + kCounter, sizeof counter);
  return counter;
}

void count_in(std::byte* page) {
  const std::uint64_t counter = counter_in(page) + 1;
  std::memcpy(page + kCounter, &counter, sizeof counter);
}

// Writable blocks of a cache.
class HeadracePages {
 public:
  static Result<std::unique_ptr<HeadracePages>> make(const Source& source, Bytes budget) {
    HEADRACE_TRY(auto store, HeadraceStore::make(source, budget));
    return std::make_unique<HeadracePages>(std::move(store));
  }
  explicit HeadracePages(std::unique_ptr<HeadraceStore> store) : store_(std::move(store)) {}

  template <class Use>
  bool access(std::uint64_t page, bool write, const Use& use) {
    if (!write) {
      const Block block = store_->cache().access(store_->source().extent(page));
      const auto bytes = block.wait();
      if (bytes) use(const_cast<std::byte*>(bytes->data()));
      return bytes.has_value();
    }
    Block block = store_->cache().access(store_->source().extent(page), {.write = true});
    const auto bytes = block.wait_to_write();
    if (bytes) use(bytes->data());
    return bytes.has_value();
  }
  bool flush() { return store_->cache().sync().has_value(); }
  std::uint64_t misses() const { return store_->misses(); }

 private:
  const std::unique_ptr<HeadraceStore> store_;
};

// Without writable blocks: a changed copy goes through the Mover, and the block is invalidated.
class MoverPages {
 public:
  static Result<std::unique_ptr<MoverPages>> make(const Source& source, Bytes budget) {
    HEADRACE_TRY(auto store, HeadraceStore::make(source, budget));
    return std::make_unique<MoverPages>(std::move(store));
  }
  explicit MoverPages(std::unique_ptr<HeadraceStore> store) : store_(std::move(store)) {}

  template <class Use>
  bool access(std::uint64_t page, bool write, const Use& use) {
    const Extent extent = store_->source().extent(page);
    // Else two threads would change copies of one version.
    const std::unique_lock turn =
        write ? std::unique_lock(turns_[page % turns_.size()]) : std::unique_lock<std::mutex>();
    {
      const Block block = store_->cache().access(extent);
      const auto bytes = block.wait();
      if (!bytes) return false;
      if (!write) {
        use(const_cast<std::byte*>(bytes->data()));
        return true;
      }
      thread_local Held copy(static_cast<std::byte*>(std::aligned_alloc(4096, kPage)), Free{});
      std::memcpy(copy.get(), bytes->data(), kPage);
      use(copy.get());
      const MemoryRange range({copy.get(), kPage}, block.node().value_or(NodeId{0}));
      if (!store_->mover().copy(extent, whole(range)).wait()) return false;
    }
    (void)store_->cache().invalidate(extent);
    return true;
  }
  bool flush() { return true; }
  std::uint64_t misses() const { return store_->misses(); }

 private:
  const std::unique_ptr<HeadraceStore> store_;
  std::array<std::mutex, 256> turns_;
};

class PoolPages : public PagePool {
 public:
  static Result<std::unique_ptr<PoolPages>> make(const Source& source, Bytes budget) {
    return std::make_unique<PoolPages>(source, kPage, budget);
  }
  using PagePool::PagePool;
};

struct Tree {
  std::uint64_t inner;
  std::uint64_t leaves;
  Source pages;
  std::vector<Draws> draws;  // leaves, of each thread

  std::uint64_t page_of(std::uint64_t leaf) const { return 1 + inner + leaf; }
  std::uint64_t inner_of(std::uint64_t leaf) const { return 1 + leaf / kFanOut; }

  static Result<Tree> make(const Options& options) {
    const std::uint64_t leaves = options.extents.value_or(kLeaves);
    const std::uint64_t inner = (leaves + kFanOut - 1) / kFanOut;
    const std::filesystem::path path = options.directory / "page-update.bin";
    std::error_code error;
    std::filesystem::remove(path, error);  // its counters
    HEADRACE_TRY_STATUS(write_words(path, (1 + inner + leaves) * kPage));
    DiscoverOptions where;
    where.storage = {options.directory};
    HEADRACE_TRY(const Machine machine, Machine::discover(where));
    HEADRACE_TRY(Source pages,
                 Source::in_file(machine, path, std::vector(1 + inner + leaves, kPage), true));
    Tree tree{inner, leaves, std::move(pages), {}};
    Random random(options.seed);
    for (unsigned thread = 0; thread < options.threads; ++thread) {
      tree.draws.push_back(zipf(random, options.seed, leaves, 0.99, kLeafDraws));
    }
    return tree;
  }
};

struct Work {
  Tally tally;
  Histogram reads;
  Histogram updates;
  Draws updated;  // leaves, once per update
};

template <class Pages>
void work(Pages& pages, const Tree& tree, const Draws& draws, std::uint64_t seed,
          const Until& until, Work& done) {
  using Clock = std::chrono::steady_clock;
  Random random(seed);
  std::size_t next = random.below(draws.size());
  do {
    const std::uint32_t leaf = draws[next];
    if (++next == draws.size()) next = 0;
    const bool update = random.below(kUpdateOneIn) == 0;
    const auto holds = [&](std::uint64_t page) {
      return pages.access(page, false, [&](const std::byte* bytes) {
        done.tally.wrong += !tree.pages.holds(page, 64, bytes);
      });
    };
    bool right = holds(kRoot) && holds(tree.inner_of(leaf));
    const std::uint64_t page = tree.page_of(leaf);
    const Clock::time_point begin = Clock::now();
    right = pages.access(page, update, [&](std::byte* bytes) {
      done.tally.wrong += !tree.pages.holds(page, 64, bytes);
      if (update) count_in(bytes);
    }) && right;
    const auto taken =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count());
    (update ? done.updates : done.reads).record(taken);
    if (update) done.updated.push_back(leaf);
    done.tally.wrong += !right;
  } while (!until.enough(++done.tally.operations));
}

// Number of leaves whose counter in the file differs from the number of updates.
std::uint64_t lost(const Tree& tree, const std::vector<std::uint64_t>& updates) {
  const Held bytes(static_cast<std::byte*>(std::aligned_alloc(4096, kPage)), Free{});
  std::uint64_t wrong = 0;
  for (std::uint64_t leaf = 0; leaf < tree.leaves; ++leaf) {
    const std::uint64_t page = tree.page_of(leaf);
    const std::uint64_t wanted = word_at(tree.pages.place(page).offset + kCounter) + updates[leaf];
    wrong += !tree.pages.read(page, bytes.get()) || counter_in(bytes.get()) != wanted;
  }
  return wrong;
}

template <class Pages>
Result<Json> run(const Options& options) {
  HEADRACE_TRY(const Tree tree, Tree::make(options));
  std::vector<std::uint64_t> updates(tree.leaves);
  std::vector<Work> works;
  Timing timing;
  std::uint64_t misses = 0;
  double flush_seconds = 0;
  {
    HEADRACE_TRY(const std::unique_ptr<Pages> pages,
                 Pages::make(tree.pages, options.budget.value_or(kBudget)));
    for (std::uint64_t part = 0; part < 2; ++part) {  // the first fills the cache
      works = std::vector<Work>(options.threads);
      misses = pages->misses();
      timing = run_threads(options.threads,
                           {.seconds = options.seconds, .operations = options.operations},
                           [&](unsigned thread, const Until& until) {
                             work(*pages, tree, tree.draws[thread],
                                  options.seed * 4096 + 64 * thread + part, until, works[thread]);
                             return works[thread].tally;
                           });
      for (const Work& one : works) {
        for (const std::uint32_t leaf : one.updated) ++updates[leaf];
      }
    }
    misses = pages->misses() - misses;
    const auto begin = std::chrono::steady_clock::now();
    if (!pages->flush()) return fail(ErrorCode::io, "changed pages could not be written");
    flush_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  for (Work& one : works) {
    if (&one == works.data()) continue;
    works[0].reads.add(one.reads);
    works[0].updates.add(one.updates);
  }
  const auto quantile = [](const Histogram& histogram, double q) {
    const auto found = histogram.quantile(q);
    return found ? Json(*found) : Json(nullptr);
  };
  const std::uint64_t count = works[0].updates.count();
  return Json{
      {"implementation", options.implementation},
      {"scenario", kPageUpdate},
      {"threads", options.threads},
      {"operations", timing.tally.operations},
      {"seconds", timing.seconds},
      {"operations_per_second", static_cast<double>(timing.tally.operations) / timing.seconds},
      {"updates", count},
      {"misses", misses},
      {"read_p50_ns", quantile(works[0].reads, 0.5)},
      {"read_p99_ns", quantile(works[0].reads, 0.99)},
      {"update_p50_ns", quantile(works[0].updates, 0.5)},
      {"update_p99_ns", quantile(works[0].updates, 0.99)},
      {"flush_seconds", flush_seconds},
      {"direct", tree.pages.direct()},
      {"wrong", timing.tally.wrong + lost(tree, updates)}};
}

}  // namespace

Result<Json> run_page_update(const Options& options) {
  if (options.implementation == "headrace") return run<HeadracePages>(options);
  if (options.implementation == "mover") return run<MoverPages>(options);
  if (options.implementation == "pool") return run<PoolPages>(options);
  return fail(ErrorCode::absent, "no implementation '{}' of {}; give headrace, mover or pool",
              options.implementation, kPageUpdate);
}

}  // namespace headrace::cache_bench
