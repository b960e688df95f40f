// How many threads are inside something, counted without a lock: each thread counts on a line of
// its own, so that threads do not slow each other down. What is to be ended sets a flag that
// stops newcomers, then waits until nobody is inside.
//
// Thread-safe. A thread that enters and then finds the flag set leaves at once; whoever set the
// flag and then finds nobody inside is followed by nobody who did not see it (both sequentially
// consistent).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace headrace {

class Inside {
 public:
  // Counts the calling thread while it lives.
  class Entered {
   public:
    explicit Entered(Inside& inside) : count_(inside.mine()) { count_.fetch_add(1); }
    ~Entered() { count_.fetch_sub(1); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    std::atomic<std::uint32_t>& count_;
  };

  bool nobody() const {
    return std::ranges::all_of(lines_, [](const Line& line) { return line.count.load() == 0; });
  }

 private:
  // A line of its own: threads that share one would wait for each other's writes.
  struct alignas(64) Line {
    std::atomic<std::uint32_t> count{0};
  };
  static constexpr std::size_t kLines = 16;

  static std::size_t line_of_thread() {
    static constinit std::atomic<std::size_t> threads{0};
    // Not constinit: threads take turns.
    thread_local const std::size_t line = threads.fetch_add(1) % kLines;
    return line;
  }
  std::atomic<std::uint32_t>& mine() { return lines_[line_of_thread()].count; }

  std::array<Line, kLines> lines_;
};

}  // namespace headrace
