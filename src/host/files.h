// SPDX-License-Identifier: Apache-2.0
// Files by which Linux shows what a process has and takes settings: those of /proc, /sys and /run,
// by names such as "proc/swaps". Tests give another host as a folder, or refuse single calls.
// Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

class HostFiles {
 public:
  explicit HostFiles(std::filesystem::path root = "/");
  // With /sys and /proc elsewhere.
  HostFiles(std::filesystem::path sysfs, std::filesystem::path procfs);
  virtual ~HostFiles() = default;
  HostFiles(const HostFiles&) = default;
  HostFiles& operator=(const HostFiles&) = default;

  // The text without white space at its ends; the switches true, Y, false and N as "1" and "0".
  // Errors: absent: no such file; denied: takes root; exhausted: busy for all of `busy_bound`.
  Result<std::string> read(const std::string& name) const;
  // The same; "": the file is empty or cannot be read.
  std::string text(const std::string& name) const { return read(name).value_or(""); }
  // Errors: the kernel's reason.
  Status write(const std::string& name, const std::string& value) const;
  bool writable(const std::string& name) const;
  // The names that exist for a pattern such as "sys/block/zram*"; node2 comes before node10.
  // Errors: a folder cannot be read; one that is absent has no names.
  Result<std::vector<std::string>> names(const std::string& pattern) const;
  std::filesystem::path path(const std::string& name) const;
  const std::filesystem::path& root() const { return root_; }
  // Sleeps between two attempts, for files and locks that others have.
  virtual void pause(Nanoseconds time) const;

  // DAMON's files are busy while another one of them is read.
  Nanoseconds busy_bound = std::chrono::seconds{1};
  // For a lock that another process has while it changes two files.
  Nanoseconds lock_bound = std::chrono::seconds{10};

 protected:
  // One attempt. Return 0 or errno.
  virtual int read_once(const std::string& name, std::string& text) const;
  virtual int write_once(const std::string& name, const std::string& value) const;

 private:
  std::filesystem::path root_;
  std::filesystem::path sysfs_;
  std::filesystem::path procfs_;
};

// Parts of texts in which each line is a name and a value, as in /proc/meminfo or memory.stat.

// The first number in `text`.
std::optional<std::uint64_t> number_in(std::string_view text);
// The text behind the word `name` on its line; nullopt: no such word.
std::optional<std::string_view> text_after(std::string_view text, std::string_view name);
// The first number there; 0: none.
std::uint64_t count_after(std::string_view text, std::string_view name);
// The same in KiB, as /proc counts.
Bytes kib_after(std::string_view text, std::string_view name);

}  // namespace headrace
