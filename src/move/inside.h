// SPDX-License-Identifier: Apache-2.0
// Counts, without a lock, the threads inside a section, and the copies that each made there. Each
// thread counts on its own cache line, so that threads do not slow each other down. To end the
// section, set a flag that stops new threads, then wait until nobody() is true.
//
// Thread-safe. A thread that enters and then finds the flag set leaves at once. Once the flag is
// set and nobody() was true, every later thread sees the flag (both are sequentially consistent).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace headrace {

class Inside {
  // Aligned to a cache line: threads that share one would wait for each other's writes.
  struct alignas(64) Line {
    std::atomic<std::uint64_t> threads{0};
    std::atomic<std::uint64_t> copies{0};
    std::atomic<std::uint64_t> bytes{0};
  };

 public:
  // Counts the calling thread while it lives.
  class Entered {
   public:
    explicit Entered(Inside& inside) : line_(inside.mine()) { line_.threads.fetch_add(1); }
    ~Entered() { line_.threads.fetch_sub(1); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

    void count_copy(std::uint64_t bytes) {
      line_.copies.fetch_add(1);
      line_.bytes.fetch_add(bytes);
    }

   private:
    Line& line_;
  };

  bool nobody() const {
    return std::ranges::all_of(lines_, [](const Line& line) { return line.threads.load() == 0; });
  }
  struct Copies {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
  };
  Copies copies() const {
    Copies all;
    for (const Line& line : lines_) {
      all.count += line.copies.load();
      all.bytes += line.bytes.load();
    }
    return all;
  }

 private:
  static constexpr std::size_t kLines = 16;

  static std::size_t line_of_thread() {
    static constinit std::atomic<std::size_t> threads{0};
    // Not constinit: the initial value differs for each thread.
    thread_local const std::size_t line = threads.fetch_add(1) % kLines;
    return line;
  }
  Line& mine() { return lines_[line_of_thread()]; }

  std::array<Line, kLines> lines_;
};

}  // namespace headrace
