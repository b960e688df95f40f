// SPDX-License-Identifier: Apache-2.0
// Many small copies by one kernel on a GPU's multiprocessors, in the place of its copy engines: for
// the backend that moves, and for the experiment that finds out when it pays.
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

// Puts the copies in a stream, kMostGathered by each launch of the kernel kGather. `put`: how many
// are in it, the first ones, also where the driver refused the rest. The grid is small, so that it
// leaves most multiprocessors to others. Requires: each fits_gather(), and is memory that the GPU
// reaches at this address, else the context ends; the context is current.
CUresult gather(const Driver& driver, CUfunction kernel, std::span<const ListedCopy> copies,
                CUstream stream, std::size_t& put);

// That kernel, loaded for a context.
class GatherKernel {
 public:
  // Compiles it where the driver has not kept it. Requires, as the end: `context`, which it
  // borrows, is current.
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

// Pinned memory for the list of one launch, so that a whole layer is one. Thread-compatible.
class GatherList {
 public:
  explicit GatherList(const Context& context) : context_(context) {}
  ~GatherList();
  GatherList(const GatherList&) = delete;
  GatherList& operator=(const GatherList&) = delete;

  // Puts them in a stream by one launch. False: no memory for the list, more than it holds, or the
  // driver refused; nothing is in the stream. Requires: as gather(); the stream has done what was
  // launched before.
  bool launch(const GatherKernel& kernel, std::span<const ListedCopy> copies, CUstream stream);

 private:
  static constexpr std::size_t kMost = 8192;
  const Context& context_;
  ListedCopy* list_ = nullptr;  // kMost, once it was needed
};

}  // namespace headrace::cuda
