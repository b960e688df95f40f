// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/copy_stream.h"

#include <algorithm>

namespace headrace::cuda {
namespace {

constexpr std::size_t kMostOfBatch = 128;

}  // namespace

std::vector<StreamCopy> coalesce(std::span<const StreamCopy> copies,
                                 std::vector<std::size_t>& part_of) {
  std::vector<StreamCopy> made;
  part_of.clear();
  for (const StreamCopy& copy : copies) {
    StreamCopy* const last = made.empty() ? nullptr : &made.back();
    if (last != nullptr && last->to + last->bytes == copy.to &&
        last->from + last->bytes == copy.from) {
      last->bytes += copy.bytes;
      last->reached = last->reached && copy.reached;
    } else {
      made.push_back(copy);
    }
    part_of.push_back(made.size() - 1);
  }
  return made;
}

Result<std::unique_ptr<Event>> Event::make(const Context& context) {
  CUevent handle = nullptr;
  const CUresult result = context.driver().cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return fail_cuda(context.driver(), result, "cannot make an event");
  return std::unique_ptr<Event>(new Event(context, handle));
}

Event::~Event() {
  if (context_.here()) context_.driver().cuEventDestroy_v2(handle_);
}

Result<std::unique_ptr<CopyStream>> CopyStream::open(const Context& context,
                                                     const CopyMeans& means) {
  std::unique_ptr<CopyStream> stream(new CopyStream(context, means));
  const Driver& driver = context.driver();
  CUresult result = driver.cuStreamCreate(&stream->copies_, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) {
    result = driver.cuStreamCreate(&stream->signals_, CU_STREAM_NON_BLOCKING);
  }
  if (result != CUDA_SUCCESS) return fail_cuda(driver, result, "cannot make a stream");
  return stream;
}

CopyStream::~CopyStream() {
  if (!context_.here()) return;
  if (signals_ != nullptr) context_.driver().cuStreamDestroy_v2(signals_);
  if (copies_ != nullptr) context_.driver().cuStreamDestroy_v2(copies_);
}

std::vector<std::size_t> CopyStream::enqueue_gathered(std::span<const StreamCopy> copies,
                                                      const GatherLimit& limit,
                                                      GatherList* its_list) const {
  std::vector<std::size_t> rest;
  std::vector<std::size_t> small;
  std::vector<ListedCopy> list;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const ListedCopy copy{.to = copies[i].to, .from = copies[i].from, .bytes = copies[i].bytes};
    const bool gathered = means_.kernel != nullptr && copies[i].reached &&
                          copy.bytes <= limit.bytes.value && fits_gather(copy);
    (gathered ? small : rest).push_back(i);
    if (gathered) list.push_back(copy);
  }
  std::size_t put = 0;
  // A refused launch has copied nothing.
  if (small.size() >= std::max<std::uint64_t>(2, limit.count)) {
    const bool whole = its_list != nullptr && its_list->launch(*means_.kernel, list, copies_);
    if (whole) put = list.size();
    if (!whole) gather(context_.driver(), means_.kernel->function(), list, copies_, put);
  }
  rest.insert(rest.end(), small.begin() + static_cast<std::ptrdiff_t>(put), small.end());
  return rest;
}

// After a failure it is unknown which copies are in the stream. The batch is given in parts, so
// that engines begin with the first part while the next one is given. A layer of 512 fragments of
// 64 KiB took 0.7 ms in parts and 1.0 ms by one call (H200, docs/results/2026-11-27-gpu-link.md).
CUresult CopyStream::enqueue_batch(std::span<const StreamCopy> copies,
                                   std::span<const std::size_t> which) const {
  std::vector<CUdeviceptr> to;
  std::vector<CUdeviceptr> from;
  std::vector<std::size_t> bytes;
  for (const std::size_t i : which) {
    to.push_back(copies[i].to);
    from.push_back(copies[i].from);
    bytes.push_back(copies[i].bytes);
  }
  for (std::size_t at = 0; at < to.size(); at += kMostOfBatch) {
    const std::size_t count = std::min(kMostOfBatch, to.size() - at);
    const CUresult result = copy_batch(context_.driver(), std::span(to).subspan(at, count),
                                       std::span(from).subspan(at, count),
                                       std::span(bytes).subspan(at, count), copies_);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool CopyStream::enqueue(std::span<const StreamCopy> copies, std::span<CUresult> results,
                         const GatherLimit& limit, GatherList* list) const {
  const Driver& driver = context_.driver();
  std::vector<std::size_t> part_of;
  const std::vector<StreamCopy> made = coalesce(copies, part_of);
  const std::vector<std::size_t> rest = enqueue_gathered(made, limit, list);
  const bool possible = takes_batches(driver);
  std::vector<CUresult> of_made(made.size(), CUDA_SUCCESS);
  // After a failed batch each copy is made by itself, maybe for the second time, behind the batch:
  // the same bytes to the same place.
  if (!means_.batches || !possible || rest.size() < 2 ||
      enqueue_batch(made, rest) != CUDA_SUCCESS) {
    for (const std::size_t i : rest) {
      of_made[i] = driver.cuMemcpyAsync(made[i].to, made[i].from, made[i].bytes, copies_);
    }
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const std::size_t part = part_of[i];
    results[i] = of_made[part];
    // The driver refuses copies across registrations or allocations; then each copy goes by itself.
    if (results[i] != CUDA_SUCCESS && made[part].bytes != copies[i].bytes) {
      results[i] = driver.cuMemcpyAsync(copies[i].to, copies[i].from, copies[i].bytes, copies_);
    }
  }
  return rest.size() < made.size();
}

bool CopyStream::enqueue_list(std::span<const ListedCopy> copies, GatherList& list) const {
  return means_.kernel != nullptr && list.launch(*means_.kernel, copies, copies_);
}

CUresult CopyStream::mark(const Event& event) const {
  return context_.driver().cuEventRecord(event.handle(), copies_);
}

CUresult CopyStream::when_done(const Event& event, CUhostFn then, void* data) const {
  const Driver& driver = context_.driver();
  CUresult result = driver.cuStreamWaitEvent(signals_, event.handle(), 0);
  if (result == CUDA_SUCCESS) result = driver.cuLaunchHostFunc(signals_, then, data);
  return result;
}

CUresult CopyStream::query() const { return context_.driver().cuStreamQuery(copies_); }

}  // namespace headrace::cuda
