// SPDX-License-Identifier: Apache-2.0
// Many small copies by one kernel on a GPU's multiprocessors instead of its copy engines. Used by
// the backend, and by the experiment that measures when the kernel is faster.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels.h"

namespace headrace::cuda {

// Whether the kernel can make this copy: addresses and size are multiples of kGatherAlignment.
bool fits_gather(const ListedCopy& copy);

// Puts the copies in a stream, kMostGathered by each launch of the kernel kGather. `put` gets the
// number of copies in the stream, always the first ones, also if the driver refused the rest. The
// grid is small, so that it leaves most multiprocessors to other kernels. Requires: each copy
// fits_gather(); the GPU reaches its memory at this address, else the context ends; the context is
// current.
CUresult gather(const Driver& driver, CUfunction kernel, std::span<const ListedCopy> copies,
                CUstream stream, std::size_t& put);

// The gathering kernel, loaded for a context.
class GatherKernel {
 public:
  // Compiles the kernel if the driver has not cached it. Requires, as the destructor: `context`,
  // which it borrows, is current.
  static Result<std::unique_ptr<GatherKernel>> load(const Context& context);
  ~GatherKernel();
  GatherKernel(const GatherKernel&) = delete;
  GatherKernel& operator=(const GatherKernel&) = delete;
  CUfunction function() const { return function_; }
  CUfunction of_list() const { return of_list_; }
  const Context& context() const { return context_; }

 private:
  explicit GatherKernel(const Context& context) : context_(context) {}

  const Context& context_;
  CUmodule module_ = nullptr;      // constant after load()
  CUfunction function_ = nullptr;  // constant after load()
  CUfunction of_list_ = nullptr;   // constant after load()
};

// Pinned memory for the list of one launch, so that one launch copies a whole layer.
// Thread-compatible.
class GatherList {
 public:
  explicit GatherList(const Context& context) : context_(context) {}
  ~GatherList();
  GatherList(const GatherList&) = delete;
  GatherList& operator=(const GatherList&) = delete;

  // Puts the copies in a stream by one launch. Returns false, with nothing in the stream, if there
  // is no memory for the list, it has fewer places, or the driver refused. Requires: as gather();
  // the stream has finished the earlier launches.
  bool launch(const GatherKernel& kernel, std::span<const ListedCopy> copies, CUstream stream);

 private:
  static constexpr std::size_t kMost = 8192;
  const Context& context_;
  ListedCopy* list_ = nullptr;  // kMost entries, allocated at first use
};

}  // namespace headrace::cuda
