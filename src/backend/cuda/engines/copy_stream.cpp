#include "backend/cuda/engines/copy_stream.h"

namespace headrace::cuda {

std::vector<StreamCopy> coalesce(std::span<const StreamCopy> copies,
                                 std::vector<std::size_t>& part_of) {
  std::vector<StreamCopy> made;
  part_of.clear();
  for (const StreamCopy& copy : copies) {
    StreamCopy* const last = made.empty() ? nullptr : &made.back();
    if (last != nullptr && last->to + last->bytes == copy.to &&
        last->from + last->bytes == copy.from) {
      last->bytes += copy.bytes;
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

Result<std::unique_ptr<CopyStream>> CopyStream::open(const Context& context, bool batches) {
  std::unique_ptr<CopyStream> stream(new CopyStream(context, batches));
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

// A failure leaves open which of them are in the stream.
CUresult CopyStream::enqueue_batch(std::vector<StreamCopy>& copies) const {
  const Driver& driver = context_.driver();
  std::vector<CUdeviceptr> to;
  std::vector<CUdeviceptr> from;
  std::vector<std::size_t> bytes;
  for (const StreamCopy& copy : copies) {
    to.push_back(copy.to);
    from.push_back(copy.from);
    bytes.push_back(copy.bytes);
  }
  CUmemcpyAttributes how{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  std::size_t first = 0;
  if (driver.cuMemcpyBatchAsync_v2 != nullptr) {
    return driver.cuMemcpyBatchAsync_v2(to.data(), from.data(), bytes.data(), copies.size(), &how,
                                        &first, 1, copies_);
  }
  std::size_t failed = 0;
  return driver.cuMemcpyBatchAsync(to.data(), from.data(), bytes.data(), copies.size(), &how,
                                   &first, 1, &failed, copies_);
}

void CopyStream::enqueue(std::span<const StreamCopy> copies, std::span<CUresult> results) const {
  const Driver& driver = context_.driver();
  std::vector<std::size_t> part_of;
  std::vector<StreamCopy> made = coalesce(copies, part_of);
  const bool possible =
      driver.cuMemcpyBatchAsync_v2 != nullptr || driver.cuMemcpyBatchAsync != nullptr;
  std::vector<CUresult> of_made(made.size(), CUDA_SUCCESS);
  // After a batch that failed each is copied by itself, maybe once more, behind it: the same bytes
  // to the same place.
  if (!batches_ || !possible || made.size() < 2 || enqueue_batch(made) != CUDA_SUCCESS) {
    for (std::size_t i = 0; i < made.size(); ++i) {
      of_made[i] = driver.cuMemcpyAsync(made[i].to, made[i].from, made[i].bytes, copies_);
    }
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const std::size_t part = part_of[i];
    results[i] = of_made[part];
    // The driver refuses to go from one registration or allocation to the next: each by itself.
    if (results[i] != CUDA_SUCCESS && made[part].bytes != copies[i].bytes) {
      results[i] = driver.cuMemcpyAsync(copies[i].to, copies[i].from, copies[i].bytes, copies_);
    }
  }
}

CUresult CopyStream::when_done(const Event& event, CUhostFn then, void* data) const {
  const Driver& driver = context_.driver();
  CUresult result = driver.cuEventRecord(event.handle(), copies_);
  if (result == CUDA_SUCCESS) result = driver.cuStreamWaitEvent(signals_, event.handle(), 0);
  if (result == CUDA_SUCCESS) result = driver.cuLaunchHostFunc(signals_, then, data);
  return result;
}

CUresult CopyStream::query() const { return context_.driver().cuStreamQuery(copies_); }

}  // namespace headrace::cuda
