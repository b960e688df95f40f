// SPDX-License-Identifier: Apache-2.0
// A file mapped for reading that may shrink or fail meanwhile. Pages that the kernel cannot deliver
// read as zeros, and lost() reports it; SIGBUS does not end the process. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "headrace/file.h"
#include "headrace/result.h"

namespace headrace {

class MappedFile {
 public:
  // Errors: exhausted: too many mappings, or too little kernel memory.
  static Result<std::unique_ptr<MappedFile>> map(const File& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Whether a page could not be read since the file was mapped.
  bool lost() const;

 private:
  MappedFile(std::byte* data, std::size_t size, std::size_t slot)
      : data_(data), size_(size), slot_(slot) {}

  std::byte* const data_;
  const std::size_t size_;
  const std::size_t slot_;
};

}  // namespace headrace
