// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <unordered_map>
#include <vector>

#include "core/fail.h"
#include "headrace/backend.h"
#include "headrace/file.h"
#include "headrace/heap.h"
#include "headrace/machine.h"
#include "headrace/mover.h"

namespace headrace::kv_bench {
namespace {

constexpr std::uint64_t kSlotUnit = 512;  // the least that devices read

std::uint64_t slot_of(std::size_t value_bytes) {
  return (std::max<std::uint64_t>(value_bytes, 1) + kSlotUnit - 1) / kSlotUnit * kSlotUnit;
}

// Makes a file of `bytes` bytes without writing any.
Status make_file(const std::filesystem::path& path, std::uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno(errno, "cannot make " + path.string());
  const int error = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  ::close(fd);
  if (error == 0) return {};
  return fail_errno(error, "cannot make " + path.string());
}

Result<NodeId> node_with_cpus(const Machine& machine) {
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && !node.cpus.empty()) return node.id;
  }
  return fail(ErrorCode::absent, "no memory near a CPU; headrace topo lists the nodes");
}

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const {
    return std::hash<std::string_view>{}(name);
  }
};

// The file, and the engine that copies from it.
struct OnFile {
  explicit OnFile(Machine found) : machine(std::move(found)) {}

  Machine machine;
  Backends backends;
  std::unique_ptr<File> file;
  std::unique_ptr<Mover> mover;
  std::unique_ptr<Cache> cache;
  Bytes cached;
  std::uint64_t slot = 0;
  std::uint64_t slots = 0;
  std::uint64_t next = 0;
};

Result<std::unique_ptr<OnFile>> open_file(const StoreOptions& options) {
  const std::uint64_t slot = slot_of(options.value_bytes), slots = options.records * 4 + 1'000'000;
  HEADRACE_TRY_STATUS(make_file(options.file, slot * slots));
  DiscoverOptions discover;
  discover.storage = {options.file};
  HEADRACE_TRY(Machine machine, Machine::discover(discover));
  auto made = std::make_unique<OnFile>(std::move(machine));
  made->cached = options.cached;
  made->slot = slot;
  made->slots = slots;
  HEADRACE_TRY(made->backends, Backends::open(made->machine));
  HEADRACE_TRY(made->file, File::open(made->machine, options.file, {.writable = true}));
  HEADRACE_TRY(const NodeId node, node_with_cpus(made->machine));
  made->mover = std::make_unique<Mover>(made->machine, made->backends);
  CacheOptions cache{.budgets = {{node, options.cached}}};
  cache.placement = place::always(node);
  cache.pages = PageSize::base;
  HEADRACE_TRY(made->cache, Cache::create(*made->mover, std::move(cache)));
  return made;
}

}  // namespace

class Store::Inside {
 public:
  Inside(std::unique_ptr<Heap> heap, std::unique_ptr<OnFile> on_file)
      : heap_(std::move(heap)), on_file_(std::move(on_file)), entries_(heap_.get()) {}

  Status set(std::string_view name, std::string_view value) {
    auto found = entries_.find(name);
    const bool known = found != entries_.end();
    Entry entry = known ? found->second : Entry{};
    HEADRACE_TRY_STATUS(on_file_ != nullptr ? write(entry, known, value) : keep(entry, value));
    if (known) {
      found->second = entry;
    } else {
      entries_.emplace(name, entry);
    }
    return {};
  }

  std::optional<Found> get(std::string_view name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::nullopt;
    const Entry& entry = found->second;
    if (on_file_ == nullptr) return Found{.value = {entry.value, entry.bytes}};
    return Found{.block = on_file_->cache->access(
                     {on_file_->file.get(), entry.slot * on_file_->slot, Bytes{entry.bytes}})};
  }

 private:
  struct Entry {
    char* value = nullptr;
    std::uint64_t slot = 0;
    std::uint64_t bytes = 0;
  };

  Status keep(Entry& entry, std::string_view value) {
    if (entry.value == nullptr || entry.bytes != value.size()) {
      char* const made = static_cast<char*>(heap_->allocate_bytes(value.size()));
      if (made == nullptr) {
        return Unexpected(heap_->last_error().value_or(Error{ErrorCode::exhausted, "memory"}));
      }
      heap_->free(entry.value);
      entry = {.value = made, .bytes = value.size()};
    }
    std::memcpy(entry.value, value.data(), value.size());
    return {};
  }

  Status write(Entry& entry, bool known, std::string_view value) {
    OnFile& on = *on_file_;
    if (value.size() > on.slot) return fail(ErrorCode::invalid, "a value of more than {}", on.slot);
    if (!known && on.next == on.slots) return fail(ErrorCode::exhausted, "the file is full");
    const std::uint64_t slot = known ? entry.slot : on.next;
    const std::uint64_t at = slot * on.slot;
    for (std::size_t done = 0; done < value.size();) {
      const ssize_t got = ::pwrite(on.file->buffered_fd(), value.data() + done, value.size() - done,
                                   static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return fail_errno(errno, "cannot write to " + on.file->quoted());
      done += static_cast<std::size_t>(got);
    }
    const Extent extent{on.file.get(), at, Bytes{on.slot}};
    if (known) {
      on.cache->invalidate(extent);
    } else {
      ++on.next;
      // Values that fit are in memory from the beginning, as in a server that moves only the excess
      // out.
      if (extent.end() <= on.cached.value) (void)on.cache->access(extent.part(0, {value.size()}));
    }
    entry = {.slot = slot, .bytes = value.size()};
    return {};
  }

  const std::unique_ptr<Heap> heap_;
  const std::unique_ptr<OnFile> on_file_;  // nullptr: values are in the heap
  std::pmr::unordered_map<std::pmr::string, Entry, Hash, std::equal_to<>> entries_;
};

Store::Store(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const StoreOptions& options) {
  std::unique_ptr<OnFile> on_file;
  if (!options.file.empty()) {
    HEADRACE_TRY(on_file, open_file(options));
  }
  DiscoverOptions discover;
  discover.storage = {};
  HEADRACE_TRY(const Machine machine, Machine::discover(discover));
  HEADRACE_TRY(const NodeId node, node_with_cpus(machine));
  Placement placement = Placement::on(node);
  placement.strict = false;
  if (!options.placement.empty()) {
    HEADRACE_TRY(placement, Placement::parse(machine, options.placement));
  }
  placement.pages = PageSize::base;
  HEADRACE_TRY(auto heap, Heap::open(machine, placement));
  return std::unique_ptr<Store>(
      new Store(std::make_unique<Inside>(std::move(heap), std::move(on_file))));
}

Status Store::set(std::string_view name, std::string_view value) {
  return inside_->set(name, value);
}

std::optional<Store::Found> Store::get(std::string_view name) { return inside_->get(name); }

Result<std::string> Store::value_of(const Block& block) {
  const auto bytes = block.wait();
  if (bytes) return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const Extent extent = block.extent();
  const auto& file = static_cast<const File&>(*extent.object);
  std::string value(extent.length.value, '\0');
  const ssize_t got =
      ::pread(file.buffered_fd(), value.data(), value.size(), static_cast<off_t>(extent.offset));
  if (got == static_cast<ssize_t>(value.size())) return value;
  return Unexpected(bytes.error());
}

}  // namespace headrace::kv_bench
