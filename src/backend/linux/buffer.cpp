#include "headrace/buffer.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {

class LinuxMemory {
 public:
  static Result<std::unique_ptr<Buffer>> allocate(Bytes bytes, const Placement& placement) {
    const Bytes mapped{(bytes.value + 4095) / 4096 * 4096};
    void* memory =
        ::mmap(nullptr, mapped.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail_errno(errno, "mmap");
    return std::unique_ptr<Buffer>(
        new Buffer(static_cast<std::byte*>(memory), bytes, mapped, placement, PageSize::base, ""));
  }
};

Buffer::Buffer(std::byte* memory, Bytes size, Bytes mapped, Placement placement, PageSize page_size,
               std::string fallback)
    : Object(size, placement.nodes.front().node, memory),
      mapped_(mapped),
      placement_(std::move(placement)),
      page_size_(page_size),
      fallback_(std::move(fallback)) {}

Buffer::~Buffer() { CHECK(::munmap(memory(), mapped_.value) == 0); }

Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                         const Placement& placement) {
  HEADRACE_TRY(Placement resolved, resolve(machine, placement));
  if (bytes.value == 0) return fail(ErrorCode::invalid, "0 bytes asked for; ask for at least 1");
  return LinuxMemory::allocate(bytes, resolved);
}

std::uint64_t Residency::total() const {
  std::uint64_t sum = absent;
  for (const auto& [node, count] : pages) sum += count;
  return sum;
}

Result<Residency> where(std::span<const std::byte> range) {
  Residency residency;
  if (range.empty()) return residency;
  const auto first = reinterpret_cast<std::uintptr_t>(range.data()) / 4096;
  const auto last = (reinterpret_cast<std::uintptr_t>(range.data()) + range.size() - 1) / 4096;
  std::vector<void*> pages;
  for (auto page = first; page <= last; ++page)
    pages.push_back(reinterpret_cast<void*>(page * 4096));
  std::vector<int> status(pages.size());
  if (::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, status.data(), 0) != 0) {
    return fail_errno(errno, "move_pages");
  }
  for (const int node : status) {
    if (node < 0) {
      ++residency.absent;
    } else {
      ++residency.pages[NodeId{static_cast<std::uint32_t>(node)}];
    }
  }
  return residency;
}

}  // namespace headrace
