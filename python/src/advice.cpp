// SPDX-License-Identifier: Apache-2.0
// Advice as Python sees it: plain data, computed by pure functions.
#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

void bind_interleave_parts(nb::module_& m) {
  Record<Spread>(m, "Spread", "The predicted result of spreading data over memories.")
      .field("share", &Spread::share,
             "The share of each node, in the advice's order; adds up to 1.")
      .field("bandwidth", &Spread::bandwidth, "Bytes per second of the memories together.")
      .field("latency_ns", &Spread::latency_ns, "Mean; None: the demand cannot be met.")
      .field("saturated", &Spread::saturated, "Whether a memory is at its limit.")
      .field("tier_bandwidth", &Spread::tier_bandwidth, "Bytes per second of each node.");
  Record<NamedSpread>(m, "NamedSpread", "A candidate spread.")
      .field("name", &NamedSpread::name, "best, weights, node 0 only, 3:1, by bandwidth, ...")
      .field("spread", &NamedSpread::spread, "The predicted result; None: see reason.")
      .field("reason", &NamedSpread::reason, "Why this spread is impossible.");
  Record<AdvisedNode>(m, "AdvisedNode", "A memory that the advice considered.")
      .field("node", &AdvisedNode::node, "The kernel's NUMA number.")
      .field("kind", &AdvisedNode::kind, "The kind of memory.")
      .field("share", &AdvisedNode::share, "The best share.")
      .field("weight", &AdvisedNode::weight, "The share as an integer weight; 0: not used.")
      .field("idle_ns", &AdvisedNode::idle_ns, "Its latency with the least load.")
      .field("best", &AdvisedNode::best, "The most bytes per second that it gave.")
      .field("most_share", &AdvisedNode::most_share, "The largest share of the data set that fits.")
      .field("basis", &AdvisedNode::basis, "The basis of its curve.")
      .field("source", &AdvisedNode::source, "The publisher of its curve; empty: measured.");
  Record<Flip>(m, "Flip", "The demand above which a spread helps.")
      .field("bandwidth", &Flip::bandwidth, "Bytes per second of the memory.")
      .field("lines", &Flip::lines, "Cache lines in flight at that demand.");
}

void bind_interleave(nb::module_& m) {
  bind_interleave_parts(m);
  Record<InterleaveAdvice>(m, "InterleaveAdvice",
                           "Advice on spreading a data set, with the predicted result.")
      .field("cpu_node", &InterleaveAdvice::cpu_node, "The node whose CPUs use the data.")
      .field("mix", &InterleaveAdvice::mix, "The mix of the program's loads and stores.")
      .computed(
          "bus", [](const InterleaveAdvice& self) { return self.traffic.bus; },
          "Bytes of memory traffic per byte that the program reads or writes.")
      .computed(
          "demand", [](const InterleaveAdvice& self) { return self.load.demand; },
          "Bytes per second asked of the memory; None: see lines.")
      .computed(
          "lines", [](const InterleaveAdvice& self) { return self.load.lines; },
          "Lines in flight all the time; None: see demand.")
      .field("nodes", &InterleaveAdvice::nodes, "The nodes in order of idle latency.")
      .field("spreads", &InterleaveAdvice::spreads, "The best, its weights, and others.")
      .field("weight_loss", &InterleaveAdvice::weight_loss,
             "Loss by integer weights, as a share; None: with them the demand is not met.")
      .field("share_error", &InterleaveAdvice::share_error, "The largest error of a share.")
      .field("flip", &InterleaveAdvice::flip, "None: a spread never helps.")
      .field("warnings", &InterleaveAdvice::warnings, "Limits of these figures.");
  m.attr("LINES_PER_THREAD") = nb::float_(kLinesPerThread);
  m.def(
      "advise_interleave",
      [](const Profile& profile, std::optional<NodeId> cpu_node, std::string mix,
         std::optional<BytesPerSecond> demand, std::optional<double> lines,
         std::optional<Bytes> data, std::map<NodeId, Bytes> free) {
        return unwrap(advise_interleave(profile, {.cpu_node = cpu_node,
                                                  .mix = std::move(mix),
                                                  .demand = demand,
                                                  .lines = lines,
                                                  .data = data,
                                                  .free = std::move(free)}));
      },
      "profile"_a, nb::kw_only(), "cpu_node"_a = nb::none(), "mix"_a = "read",
      "demand"_a = nb::none(), "lines"_a = nb::none(), "data"_a = nb::none(),
      "free"_a = std::map<NodeId, Bytes>{},
      "How much of a data set of `data` bytes belongs on which node, by loaded-latency curves. "
      "`demand`: bytes per second that the program reads and writes; or `lines` in flight.");
}

std::vector<PageCount> histogram_of(const std::vector<std::pair<double, double>>& pages) {
  std::vector<PageCount> histogram;
  histogram.reserve(pages.size());
  for (const auto& [count, accesses] : pages) histogram.push_back({count, accesses});
  return histogram;
}

void bind_hotness(nb::module_& m) {
  using Pairs = std::vector<std::pair<double, double>>;
  m.def(
      "pages_for",
      [](const Pairs& histogram, double share) {
        return unwrap(pages_for(histogram_of(histogram), share));
      },
      "histogram"_a, "share"_a,
      "The smallest number of pages that take this share of accesses. `histogram`: (pages, "
      "accesses of each).");
  m.def(
      "accesses_of",
      [](const Pairs& histogram, double pages) {
        return unwrap(accesses_of(histogram_of(histogram), pages));
      },
      "histogram"_a, "pages"_a, "The share of accesses that this number of hottest pages takes.");
  m.def(
      "zipf_pages_for",
      [](double exponent, double pages, double share) {
        return unwrap(zipf_pages_for(exponent, pages, share));
      },
      "exponent"_a, "pages"_a, "share"_a,
      "pages_for() with accesses proportional to 1 / rank**exponent.");
  m.def(
      "zipf_accesses_of",
      [](double exponent, double pages, double hottest) {
        return unwrap(zipf_accesses_of(exponent, pages, hottest));
      },
      "exponent"_a, "pages"_a, "hottest"_a,
      "accesses_of() with accesses proportional to 1 / rank**exponent.");
}

void bind_cost(nb::module_& m) {
  Record<ServerSaving>(m, "ServerSaving", "Savings by CXL memory.")
      .field("servers", &ServerSaving::servers,
             "Number of servers with CXL memory that replace one without.")
      .field("break_even", &ServerSaving::break_even, "The cost ratio that saves nothing.")
      .field("saving", &ServerSaving::saving,
             "The saving as a share of all cost; None without a cost ratio.");
  Record<CostChange>(m, "CostChange", "One input changed.")
      .field("name", &CostChange::name, "The name of the input.")
      .field("value", &CostChange::value, "The new value.")
      .field("result", &CostChange::result, "The result; None: out of the model's range.")
      .field("reason", &CostChange::reason, "Why there is no result.");
  Record<InstanceGain>(m, "InstanceGain", "The gain from selling stranded CPUs.")
      .field("stranded", &InstanceGain::stranded, "Stranded CPUs as a share of all CPUs.")
      .field("cxl_gib", &InstanceGain::cxl_gib, "GiB of CXL memory needed per CPU of the server.")
      .field("revenue", &InstanceGain::revenue,
             "Additional revenue, as a share; None without a discount.");
  m.def(
      "server_saving",
      [](double dram_speed, double cxl_speed, double capacity_ratio,
         std::optional<double> cost_ratio) {
        return unwrap(server_saving({dram_speed, cxl_speed, capacity_ratio, cost_ratio}));
      },
      "dram_speed"_a, "cxl_speed"_a, "capacity_ratio"_a, "cost_ratio"_a = nb::none(),
      "Servers with CXL memory that replace one without, and the saving. Speeds are relative to "
      "SSD.");
  m.def(
      "cost_sensitivity",
      [](double dram_speed, double cxl_speed, double capacity_ratio,
         std::optional<double> cost_ratio, double change) {
        return unwrap(sensitivity({dram_speed, cxl_speed, capacity_ratio, cost_ratio}, change));
      },
      "dram_speed"_a, "cxl_speed"_a, "capacity_ratio"_a, "cost_ratio"_a = nb::none(),
      "change"_a = 0.1, "server_saving() with each input a share lower and a share higher.");
  m.def(
      "instance_gain",
      [](double instance_gib, double server_gib, std::optional<double> discount) {
        return unwrap(instance_gain({instance_gib, server_gib, discount}));
      },
      "instance_gib"_a, "server_gib"_a, "discount"_a = nb::none(),
      "The gain from CPUs without enough DRAM, if they are sold with CXL memory.");
}

}  // namespace

void bind_advice(nb::module_& m) {
  bind_interleave(m);
  bind_hotness(m);
  bind_cost(m);
}

}  // namespace headrace::python
