// SPDX-License-Identifier: Apache-2.0
// Copies, alone and in batches. The arguments are checked at once, like in the driver, and the copy
// is made in the stream. Unregistered memory is pageable: the call returns when its copy is done.
#include <cstdint>
#include <cstring>
#include <expected>
#include <utility>
#include <vector>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

// One end of a copy.
struct Place {
  std::shared_ptr<Range> range;  // null: pageable
  std::byte* bytes = nullptr;

  bool pageable() const { return range == nullptr; }
  bool on_device() const { return !pageable() && range->kind == Kind::device; }
};

struct Copy {
  Place to;
  Place from;
  std::size_t size = 0;

  bool pageable() const { return to.pageable() || from.pageable(); }
};

// Refuses bytes that are partly inside a range and partly outside.
std::expected<Place, CUresult> place(CUdeviceptr address, std::size_t size) {
  if (address == 0) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
  const AddressSpace& memory = driver().memory;
  if (auto range = memory.find(address); range != nullptr) {
    if (!range->contains(address, size)) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
    std::byte* const bytes = range->at(address);
    return Place{std::move(range), bytes};
  }
  if (memory.overlaps(address, size)) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
  return Place{nullptr, reinterpret_cast<std::byte*>(address)};
}

std::expected<Copy, CUresult> check(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  auto target = place(to, size);
  if (!target) return std::unexpected(target.error());
  auto source = place(from, size);
  if (!source) return std::unexpected(source.error());
  return Copy{std::move(*target), std::move(*source), size};
}

void transfer(Context& context, const Copy& copy) {
  const bool to_device = copy.to.on_device();
  const bool from_device = copy.from.on_device();
  const Direction direction = to_device == from_device ? Direction::within
                              : to_device              ? Direction::to_device
                                                       : Direction::to_host;
  context.device().transfer(context, direction, copy.size, [&copy] {
    std::memmove(copy.to.bytes, copy.from.bytes, copy.size);
    return CUDA_SUCCESS;
  });
}

// The kinds of memory that a call states for its ends: never pageable.
struct Ends {
  bool device_to = false;
  bool device_from = false;
};

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream, Ends ends = {}) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    if (size == 0) return CUDA_SUCCESS;
    if (driver().fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    auto checked = check(to, from, size);
    if (!checked) return checked.error();
    if ((ends.device_to && checked->to.pageable()) ||
        (ends.device_from && checked->from.pageable())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool wait = checked->pageable();
    spend(driver().settings.call_cost);
    Context& context = *its.context;
    const auto mark = its.enqueue([&context, what = std::move(*checked)] {
      transfer(context, what);
      return CUDA_SUCCESS;
    });
    return wait ? mark->wait() : CUDA_SUCCESS;
  });
}

// The library gives one for all copies.
bool attributes_fit(const Batch& batch) {
  return batch.attributes_count == 1 && *batch.first_of_attribute == 0 &&
         batch.attributes->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
}

std::expected<std::vector<Copy>, CUresult> check_all(const Batch& batch) {
  std::vector<Copy> copies;
  copies.reserve(batch.count);
  for (std::size_t i = 0; i < batch.count; ++i) {
    auto checked = check(batch.to[i], batch.from[i], batch.sizes[i]);
    if (!checked) return std::unexpected(checked.error());
    if (batch.sizes[i] == 0) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
    copies.push_back(std::move(*checked));
  }
  return copies;
}

CUresult enqueue_batch(Stream& its, std::vector<Copy> copies) {
  bool wait = false;
  for (const Copy& each : copies) wait = wait || each.pageable();
  spend(driver().settings.descriptor_cost * copies.size());
  Context& context = *its.context;
  const auto mark = its.enqueue([&context, what = std::move(copies)] {
    // Backwards, since a batch has no order that users may rely on.
    for (auto each = what.rbegin(); each != what.rend(); ++each) transfer(context, *each);
    return CUDA_SUCCESS;
  });
  return wait ? mark->wait() : CUDA_SUCCESS;
}

}  // namespace

CUresult copy_batch(const Batch& batch, CUstream stream) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    const bool legacy = reinterpret_cast<std::uintptr_t>(stream) <= 1;
    if (legacy || batch.count == 0 || !attributes_fit(batch)) return CUDA_ERROR_INVALID_VALUE;
    if (driver().fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    auto copies = check_all(batch);
    return copies ? enqueue_batch(its, std::move(*copies)) : copies.error();
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                                            CUstream stream) {
  return copy(to, from, size, stream);
}

HEADRACE_FAKE_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from,
                                                   std::size_t size, CUstream stream) {
  return copy(to, as_address(from), size, stream, {.device_to = true});
}

HEADRACE_FAKE_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size,
                                                   CUstream stream) {
  return copy(as_address(to), from, size, stream, {.device_from = true});
}

HEADRACE_FAKE_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from,
                                                   std::size_t size, CUstream stream) {
  return copy(to, from, size, stream, {.device_to = true, .device_from = true});
}

HEADRACE_FAKE_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context,
                                                CUdeviceptr from, CUcontext from_context,
                                                std::size_t size, CUstream stream) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  for (const CUcontext context : {to_context, from_context}) {
    if (driver().contexts.find(context) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  return copy(to, from, size, stream, {.device_to = true, .device_from = true});
}

HEADRACE_FAKE_EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value,
                                              std::size_t size, CUstream stream) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    if (size == 0) return CUDA_SUCCESS;
    auto where = place(address, size);
    if (!where) return where.error();
    if (where->pageable()) return CUDA_ERROR_INVALID_VALUE;
    its.enqueue([what = std::move(*where), value, size] {
      std::memset(what.bytes, value, size);
      return CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::cuda::fake
