// SPDX-License-Identifier: Apache-2.0
#include "sim/host.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::sim {
namespace {

bool above_zero(double value) { return std::isfinite(value) && value > 0; }

// Addresses of a GPU that no CPU reaches.
class ReservedOnGpu {
 public:
  explicit ReservedOnGpu(std::shared_ptr<ReservedMemory> addresses)
      : addresses_(std::move(addresses)),
        range_(reinterpret_cast<std::uintptr_t>(addresses_->object().memory()),
               addresses_->object().size(), addresses_->object().node()) {}
  const Object& object() const { return range_; }

 private:
  const std::shared_ptr<ReservedMemory> addresses_;
  const DeviceRange range_;
};

template <class Memory>
std::shared_ptr<const Object> object_of(std::shared_ptr<Memory> memory) {
  const Object* const object = &memory->object();
  return std::shared_ptr<const Object>(std::move(memory), object);
}

}  // namespace

ReservedMemory::ReservedMemory(Host& host, std::span<std::byte> bytes, NodeId node)
    : host_(host), range_(bytes, node) {}

ReservedMemory::~ReservedMemory() { host_.release(range_.memory()); }

Result<std::unique_ptr<Host>> Host::create(Scheduler& turns, const Machine& machine) {
  HEADRACE_TRY(Solver solver, Solver::create(machine));
  return std::unique_ptr<Host>(new Host(turns, machine, std::move(solver)));
}

Host::Host(Scheduler& turns, const Machine& machine, Solver solver)
    : turns_(turns), machine_(machine), solver_(std::move(solver)), flows_(turns, solver_) {}

Host::~Host() { CHECK(reserved_.empty() && "the memory of a host is released before the host"); }

Result<std::shared_ptr<ReservedMemory>> Host::reserve(NodeId id, Bytes bytes) {
  HEADRACE_TRY(const Node* node, machine_.node(id));
  if (bytes == 0_B) return fail(ErrorCode::invalid, "no bytes of node {} to reserve", raw(id));
  const Bytes taken = taken_[id];
  const Bytes left = node->capacity && *node->capacity > taken ? *node->capacity - taken : Bytes{};
  if (node->capacity && bytes > left) {
    return fail(ErrorCode::exhausted,
                "{} do not fit on node {} of {}: {} of {} are left; make the data smaller or the "
                "node larger",
                to_string(bytes), raw(id), machine_.name, to_string(left),
                to_string(*node->capacity));
  }
  void* const at = ::mmap(nullptr, bytes.value, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return fail_errno(errno, fmt::format("cannot reserve {} of addresses for node {}",
                                         to_string(bytes), raw(id)));
  }
  // A page that is written to must not become 2 MiB.
  ::madvise(at, bytes.value, MADV_NOHUGEPAGE);
  const std::span<std::byte> all(static_cast<std::byte*>(at), bytes.value);
  reserved_[all.data()] = {.bytes = bytes, .node = id};
  taken_[id] += bytes;
  return std::shared_ptr<ReservedMemory>(new ReservedMemory(*this, all, id));
}

Result<std::shared_ptr<const Object>> Host::reserve_object(NodeId node, Bytes bytes) {
  HEADRACE_TRY(auto memory, reserve(node, bytes));
  if (machine_.find(node)->byte_addressable()) return object_of(std::move(memory));
  return object_of(std::make_shared<ReservedOnGpu>(std::move(memory)));
}

void Host::release(const std::byte* begin) {
  const auto part = reserved_.find(begin);
  Bytes& taken = taken_[part->second.node];
  taken = taken - part->second.bytes;
  ::munmap(const_cast<std::byte*>(begin), part->second.bytes.value);
  reserved_.erase(part);
}

NodeId Host::node_of(const std::byte* address) const {
  const auto after = reserved_.upper_bound(address);
  CHECK(after != reserved_.begin());
  const auto& [begin, part] = *std::prev(after);
  CHECK(address < begin + part.bytes.value && "the address was reserved by this host");
  return part.node;
}

Result<std::size_t> Host::add_work(Work work) {
  if (!above_zero(work.lines_in_flight)) {
    return fail(ErrorCode::invalid, "{}: {} lines in flight; give a number above 0", work.name,
                work.lines_in_flight);
  }
  if (work.bytes_per_second && !above_zero(*work.bytes_per_second)) {
    return fail(ErrorCode::invalid, "{}: {} bytes per second; give a rate above 0", work.name,
                *work.bytes_per_second);
  }
  works_.push_back(std::move(work));
  return works_.size() - 1;
}

Status Host::compute(NodeId cpus, std::span<const std::byte> bytes, std::size_t work,
                     double times) {
  if (bytes.empty()) return {};
  const NodeId memory = node_of(bytes.data());
  const auto key = std::tuple(cpus, memory, work);
  auto found = classes_.find(key);
  if (found == classes_.end()) {
    const Work& what = works_.at(work);
    Flow flow{
        .name = fmt::format("{}: cores of node {} read node {}", what.name, raw(cpus), raw(memory)),
        .initiator = cpus,
        .accesses = {{.node = memory, .side_cache_hits = what.side_cache_hits}},
        .in_flight_bytes = what.lines_in_flight * kLineBytes,
        .cap_bytes_per_second = what.bytes_per_second};
    HEADRACE_TRY(const std::size_t number, flows_.add_class(std::move(flow)));
    found = classes_.emplace(key, number).first;
  }
  const double all = static_cast<double>(bytes.size()) * times;
  flows_.run(found->second, Bytes{static_cast<std::uint64_t>(all)});
  return {};
}

}  // namespace headrace::sim
