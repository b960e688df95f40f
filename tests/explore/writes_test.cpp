// SPDX-License-Identifier: Apache-2.0
// Writable blocks: each access sees the last write that ended before it began, no write is lost,
// and what goes back is whole.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/cache.h"
#include "tests/explore/explore.h"
#include "tests/support/cache_rig.h"
#include "tests/support/chain_rig.h"
#include "tests/support/versioned.h"

namespace headrace::explore {
namespace {

using namespace test;

constexpr std::uint64_t kPage = 512;

CacheRig::Options writable(Trial& trial, std::uint64_t pages, std::size_t shards = 1) {
  CacheRig::Options options;
  options.fake.own_thread = true;
  options.fake.log = false;
  options.fake.seed = 1 + trial.below(1000);
  options.fake.inside_chance = trial.below(3) == 0 ? 0.3 : 0;
  options.cache.slab = 4096_B;
  options.cache.shards = shards;
  options.cache.writable = true;
  options.budget = Bytes{pages * kPage * shards};
  options.poller = true;
  options.observe = false;
  if (shards == 1 && trial.below(3) == 0) add_chain(options.cache, {pages * kPage});
  return options;
}

// Pages whose bytes are the number of their writes.
class Pages {
 public:
  Pages(Trial& trial, std::size_t pages) : trial_(trial), source_(pages * kPage), pages_(pages) {
    std::memset(source_.bytes().data(), 0, source_.bytes().size());
  }
  Extent page(std::size_t index, std::size_t count = 1) const {
    return source_.at(index * kPage, count * kPage);
  }
  const Object& object() const { return source_.object(); }

  // Adds one write, unless the copy fails.
  void write(Cache& cache, std::size_t index) {
    Page& page = pages_[index];
    Block block = cache.access(this->page(index), kPatient);
    const auto bytes = block.wait_to_write();
    if (!bytes) {
      trial_.require(may_fail, "a page can be written");
      return;
    }
    trial_.require(version_of(*bytes) == page.versions.begun(), "a writer sees the last write");
    trial_.require(!std::exchange(page.held, true), "one thread writes at a time");
    const unsigned mine = page.versions.begin_write();
    std::memset(bytes->data(), static_cast<int>(mine), kPage / 2);
    ++turns_;  // others may run
    std::memset(bytes->data() + kPage / 2, static_cast<int>(mine), kPage / 2);
    page.held = false;
    block = {};
    page.versions.end_write(mine);
  }
  // Reads `count` pages by one access.
  void read(Cache& cache, std::size_t index, std::size_t count = 1) {
    std::vector<unsigned> least;
    for (std::size_t i = 0; i < count; ++i) {
      least.push_back(pages_[index + i].versions.begin_read());
    }
    const Block block = cache.access(page(index, count), kReading);
    const auto bytes = block.wait();
    if (!bytes) return trial_.require(may_fail, "a page can be read");
    ++turns_;
    for (std::size_t i = 0; i < count; ++i) {
      const unsigned version = version_of(bytes->subspan(i * kPage, kPage));
      Versioned<unsigned>& cell = pages_[index + i].versions;
      const char* const wrong = cell.end_read(least[i], version);
      trial_.require(wrong == nullptr, wrong == nullptr ? "" : wrong);
      trial_.require(!keep_out || version == cell.begun(), "nobody writes a page that is held");
    }
  }
  // Everything that was written and not discarded is in the source.
  void check_source() {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      const unsigned version = version_of({page(i).memory(), kPage});
      trial_.require(version == pages_[i].versions.begun(), "no write is lost");
    }
  }
  // All writes of the page were lost on purpose.
  void restart(std::size_t index) {
    pages_[index].versions.restart(version_of({page(index).memory(), kPage}));
  }

  bool may_fail = false;
  // Readers keep writers out. False: blocks of other ranges, or invalidated ones, are held too.
  bool keep_out = true;

 private:
  struct Page {
    Versioned<unsigned> versions;
    bool held = false;
  };
  static constexpr AccessOptions kReading{.space_timeout = std::chrono::hours{1},
                                          .lock_timeout = std::chrono::hours{1}};
  static constexpr AccessOptions kPatient{
      .space_timeout = std::chrono::hours{1}, .write = true, .lock_timeout = std::chrono::hours{1}};

  unsigned version_of(std::span<const std::byte> bytes) const {
    const std::byte first = bytes[0];
    trial_.require(std::ranges::all_of(bytes, [first](std::byte b) { return b == first; }),
                   "a page has the bytes of one write");
    return std::to_integer<unsigned>(first);
  }

  Trial& trial_;
  std::atomic<unsigned> turns_{0};
  test::Source source_;
  std::vector<Page> pages_;
};

void finish(Trial& trial, CacheRig& rig, Pages& pages) {
  trial.require(rig.cache->write_back().has_value(), "write_back() succeeds");
  pages.check_source();
  const CacheStats stats = rig.cache->stats();
  trial.require(stats.bytes_dirty == 0_B, "nothing is dirty");
  trial.require(stats.bytes_pinned == 0_B, "no pin is left");
}

TEST(ExploreWrites, WritersAndReadersOfOnePage_TakeTurns) {
  explore([](Trial& trial) {
    Pages pages(trial, 1);
    CacheRig rig(writable(trial, 2));
    if (trial.below(2) == 0) rig.load(pages.page(0));
    const auto write = [&] {
      for (int i = 0; i < 2; ++i) pages.write(*rig.cache, 0);
    };
    const auto read = [&] {
      for (int i = 0; i < 3; ++i) pages.read(*rig.cache, 0);
    };
    trial.together({write, write, read});
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, HitsWithoutTheLock_SeeNoHalfWrittenPage) {
  explore([](Trial& trial) {
    Pages pages(trial, 1);
    CacheRig rig(writable(trial, 2));
    rig.load(pages.page(0));
    rig.load(pages.page(0));
    const auto read = [&] {
      for (int i = 0; i < 4; ++i) pages.read(*rig.cache, 0);
    };
    trial.together({read, read, [&] {
                      pages.write(*rig.cache, 0);
                      (void)rig.cache->write_back();
                      pages.write(*rig.cache, 0);
                    }});
    finish(trial, rig, pages);
  });
}

// Two frames for three pages: dirty blocks go back for the next access.
TEST(ExploreWrites, WritesBesideEvictions_LoseNothing) {
  explore([](Trial& trial) {
    Pages pages(trial, 3);
    CacheRig rig(writable(trial, 2));
    const auto work = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) {
        pages.write(*rig.cache, (first + i) % 3);
        pages.read(*rig.cache, (first + 2 * i) % 3);
      }
    };
    trial.together({[&] { work(0); }, [&] { work(2); }});
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, WriteBackBesideWrites_TakesWholePages) {
  explore([](Trial& trial) {
    Pages pages(trial, 2);
    CacheRig rig(writable(trial, 4));
    const auto write = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) pages.write(*rig.cache, (first + i) % 2);
    };
    trial.together({[&] { write(0); }, [&] { write(1); },
                    [&] {
                      for (int i = 0; i < 2; ++i) {
                        trial.require(rig.cache->write_back().has_value(), "it succeeds");
                      }
                    }});
    finish(trial, rig, pages);
  });
}

// A wide read needs bytes that only the cache has, on both sides.
TEST(ExploreWrites, WideReadsBesideWrites_SeeNoOldBytes) {
  explore([](Trial& trial) {
    Pages pages(trial, 2);
    pages.keep_out = false;
    CacheRig rig(writable(trial, 6));
    const auto write = [&](std::size_t index) {
      for (int i = 0; i < 2; ++i) pages.write(*rig.cache, index);
    };
    trial.together({[&] { write(0); }, [&] { write(1); },
                    [&] {
                      for (int i = 0; i < 3; ++i) pages.read(*rig.cache, 0, 2);
                    }});
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, FailedCopies_LoseNothingAndEndEveryWait) {
  explore([](Trial& trial) {
    Pages pages(trial, 2);
    pages.may_fail = true;
    auto options = writable(trial, 4);
    options.fake.fail_chance = 0.4;
    CacheRig rig(options);
    const auto work = [&](std::size_t index) {
      for (int i = 0; i < 2; ++i) {
        pages.write(*rig.cache, index);
        (void)rig.cache->write_back();
        pages.read(*rig.cache, 1 - index);
      }
    };
    trial.together({[&] { work(0); }, [&] { work(1); }});
    for (int i = 0; i < 100 && !rig.cache->write_back(); ++i) {
    }
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, InvalidateFlushAndResizeBesideWrites_LoseNothing) {
  explore([](Trial& trial) {
    Pages pages(trial, 2);
    pages.keep_out = false;
    CacheRig rig(writable(trial, 4));
    const auto work = [&](std::size_t index) {
      for (int i = 0; i < 2; ++i) pages.write(*rig.cache, index);
      pages.read(*rig.cache, 1 - index);
    };
    trial.together({[&] { work(0); }, [&] { work(1); },
                    [&] {
                      (void)rig.cache->invalidate(whole(pages.object()));
                      (void)rig.cache->resize(kDram, Bytes{kPage});
                      rig.cache->flush();
                      (void)rig.cache->resize(kDram, Bytes{4 * kPage});
                      rig.cache->clear();
                    }});
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, DiscardBesideReads_LeavesTheSource) {
  explore([](Trial& trial) {
    Pages pages(trial, 2);
    CacheRig rig(writable(trial, 4));
    pages.write(*rig.cache, 0);
    if (trial.below(2) == 0) (void)rig.cache->write_back();
    pages.write(*rig.cache, 0);
    const auto other = [&] {
      pages.write(*rig.cache, 1);
      pages.read(*rig.cache, 1);
    };
    trial.together({other, other, [&] {
                      const Status dropped = rig.cache->discard(pages.page(0));
                      trial.require(dropped.has_value(), "discard() ends");
                      pages.restart(0);
                      pages.read(*rig.cache, 0);
                      pages.write(*rig.cache, 0);
                    }});
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, PlansBesideWrites_FetchNothingOld) {
  explore([](Trial& trial) {
    Pages pages(trial, 4);
    pages.keep_out = false;
    CacheRig rig(writable(trial, 6));
    const std::vector<Extent> extents = {pages.page(0), pages.page(1), pages.page(0, 2),
                                         pages.page(2)};
    trial.together({[&] {
                      Prefetch ahead = rig.cache->prefetch(extents, {.window = Bytes{3 * kPage}});
                      pages.read(*rig.cache, 0);
                      pages.read(*rig.cache, 0, 2);
                    },
                    [&] {
                      pages.write(*rig.cache, 0);
                      pages.write(*rig.cache, 1);
                    },
                    [&] { pages.write(*rig.cache, 1); }});
    finish(trial, rig, pages);
  });
}

TEST(ExploreWrites, Destructor_WritesBackWhatIsDirty) {
  explore([](Trial& trial) {
    Pages pages(trial, 2);
    CacheRig rig(writable(trial, 8, 2));
    trial.together({[&] { pages.write(*rig.cache, 0); }, [&] { pages.write(*rig.cache, 1); }});
    rig.cache.reset();
    pages.check_source();
  });
}

}  // namespace
}  // namespace headrace::explore
