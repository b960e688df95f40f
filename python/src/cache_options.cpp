// SPDX-License-Identifier: Apache-2.0
// Making a Cache.
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "handles.h"
#include "types.h"

namespace headrace::python {

// Memories with their budgets, in order.
struct Budgets {
  std::vector<std::pair<NodeId, Bytes>> all;
};

}  // namespace headrace::python

namespace nanobind::detail {

template <>
struct type_caster<headrace::python::Budgets> {
  using Pairs = make_caster<std::vector<std::pair<headrace::NodeId, headrace::Bytes>>>;
  NB_TYPE_CASTER(headrace::python::Budgets,
                 const_name("collections.abc.Mapping[int, int] | ") + Pairs::Name)

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    object pairs = borrow(source);
    if (PyObject_HasAttrString(source.ptr(), "items") != 0) {
      pairs = steal(PyMapping_Items(source.ptr()));
    }
    Pairs inner;
    PyErr_Clear();
    if (!pairs.is_valid() || !inner.from_python(pairs, flags, cleanup)) return false;
    value.all = std::move(inner.value);
    return true;
  }
};

}  // namespace nanobind::detail

namespace headrace::python {

using namespace nb::literals;

namespace {

// A node, a placement, or one as people write it.
using CachePlace = std::variant<NodeId, Placement, std::string>;

// The least and the most of a tenant, or all about it.
using TenantShare = std::variant<std::pair<double, double>, CacheTenant>;

// "gpu:dram" too, which no memory of its own can have.
Placement parse_place(const Machine& machine, std::string_view text) {
  const std::size_t first = std::min(text.find(':'), text.size());
  Placement placement = unwrap(Placement::parse(machine, text.substr(0, first)));
  for (std::size_t at = first; at < text.size();) {
    const std::size_t end = std::min(text.find(':', at + 1), text.size());
    const Placement next = unwrap(Placement::parse(machine, text.substr(at + 1, end - at - 1)));
    if (next.kind) placement.spill.emplace_back(*next.kind);
    for (const NodeWeight& node : next.nodes) placement.spill.emplace_back(node.node);
    placement.strict = false;
    at = end;
  }
  return placement;
}

PlacementPolicy policy_of(const Machine& machine, const CachePlace& place) {
  if (const auto* const node = std::get_if<NodeId>(&place)) return place::always(*node);
  if (const auto* const text = std::get_if<std::string>(&place)) {
    return place::always(parse_place(machine, *text));
  }
  return place::always(std::get<Placement>(place));
}

CacheRef make_cache(const MoverRef& mover, CacheOptions options,
                    const std::optional<CachePlace>& placement,
                    const std::optional<std::string>& route, const std::string& eviction,
                    const std::optional<std::filesystem::path>& trace, nb::handle log) {
  if (placement) options.placement = policy_of(mover.owner->machine, *placement);
  if (route) options.route = unwrap(place::route_policy(*route));
  options.eviction = unwrap(eviction_order(eviction));
  const std::shared_ptr<CacheOwner> owner(new CacheOwner(mover.owner), EndOwner());
  for (const auto& [node, bytes] : options.budgets) owner->set_budget(node, bytes);
  if (!log.is_none()) {
    if (PyCallable_Check(log.ptr()) == 0) {
      raise(ErrorCode::invalid, "before_write_back must be called as f(extent, bytes)");
    }
    owner->log = reference_to(log);
    options.before_write_back = [to = owner.get()](const Extent& extent,
                                                   std::span<const std::byte> bytes) {
      return call_log(*to, extent, bytes);
    };
  }
  if (trace) {
    owner->trace = unwrap(CacheTrace::create(*trace));
    options.observer = owner->trace->observer();
  }
  owner->cache =
      unwrap(without_gil([&] { return Cache::create(owner->mover->mover, std::move(options)); }));
  return {owner};
}

constexpr const char* kOptionsOfCache =
    "`budgets`: bytes of copies per node. `placement`: put all copies here instead of in the "
    "nearest fast memory ('gpu'; 'gpu:dram': DRAM when the GPU is full). `eviction`: s3-fifo, "
    "sieve or clock. `reserve`: allocate all memory now and keep it, so that no access pays for "
    "first touch. `shards`: number of parts, a power of two, each with a lock and an equal share "
    "of each budget; 0: one for each two CPUs, each with at least 256 MiB. `writable`: blocks can "
    "be written (access with write=True); with several shards, no extent may cross a multiple of "
    "their stretch. `chain`: budgets of further memories, the fastest first: blocks are demoted to "
    "them instead of evicted, and promoted when accessed. `tenants`: users of the "
    "cache, by name: the share of each budget that others cannot take, and the most that it can "
    "have, such as (0.25, 0.5), or a CacheTenant; accesses name their tenant. With (0, 0) a tenant "
    "only reads copies that others made. `curve`: sample accesses for "
    "miss_ratio_curve(). `trace`: a file for the lives "
    "of blocks, which ui.perfetto.dev shows; complete when the cache is gone. "
    "`before_write_back`: called as f(extent, bytes) before each write-back, for a log that must "
    "be on the device first; several threads may call it at once. It must not use the cache. If it "
    "raises, the block is not written and stays dirty, and write_back() and sync() report it.";

}  // namespace

void bind_cache_tenant(nb::module_& m) {
  nb::class_<CacheTenant>(m, "CacheTenant",
                          "A user of a cache that shares its budgets with others: a value of the "
                          "cache's `tenants`.")
      .def(
          "__init__",
          [](CacheTenant* self, double least, double most, double most_pinned,
             const Word<Priority>& priority) {
            new (self) CacheTenant{.least = least,
                                   .most = most,
                                   .most_pinned = most_pinned,
                                   .priority = priority.get()};
          },
          nb::kw_only(), "least"_a = 0.0, "most"_a = 1.0, "most_pinned"_a = 1.0,
          "priority"_a = "demand",
          "`least`: share of each budget that others cannot take. `most`: share that its copies "
          "fill at most. `most_pinned`: share of all budgets together that its blocks hold at "
          "most. `priority`: lower ones give way first beyond their `least`, and their copies are "
          "queued in that class.");
}

void bind_cache_options(nb::class_<CacheRef>& cache) {
  cache.def(
      "__init__",
      [](CacheRef* self, const MoverRef& mover, const Budgets& budgets,
         const std::optional<CachePlace>& placement, const std::optional<std::string>& route,
         const std::string& eviction, Bytes slab, const Word<PageSize>& pages, bool reserve,
         std::size_t shards, bool writable, const Budgets& chain,
         const std::map<std::string, TenantShare>& tenants, bool curve,
         const std::optional<std::filesystem::path>& trace, nb::handle before_write_back) {
        CacheOptions options{.budgets = budgets.all,
                             .chain = chain.all,
                             .slab = slab,
                             .pages = pages.get(),
                             .reserve = reserve,
                             .shards = shards,
                             .writable = writable};
        options.curve = curve;
        for (const auto& [name, share] : tenants) {
          const auto* const pair = std::get_if<std::pair<double, double>>(&share);
          CacheTenant tenant = pair == nullptr
                                   ? std::get<CacheTenant>(share)
                                   : CacheTenant{.least = pair->first, .most = pair->second};
          tenant.name = name;
          options.tenants.push_back(std::move(tenant));
        }
        new (self) CacheRef(make_cache(mover, std::move(options), placement, route, eviction, trace,
                                       before_write_back));
      },
      "mover"_a, "budgets"_a, nb::kw_only(), "placement"_a = nb::none(), "route"_a = nb::none(),
      "eviction"_a = "s3-fifo", "slab"_a = 32 << 20, "pages"_a = "transparent", "reserve"_a = false,
      "shards"_a = 0, "writable"_a = false, "chain"_a = nb::dict(), "tenants"_a = nb::dict(),
      "curve"_a = false, "trace"_a = nb::none(), "before_write_back"_a = nb::none(),
      kOptionsOfCache);
}

}  // namespace headrace::python
