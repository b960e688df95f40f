// SPDX-License-Identifier: Apache-2.0
// The value of slower, cheaper memory: two models from a talk, as arithmetic.
//
// Servers: a job whose working set exceeds DRAM reads the rest from SSD. CXL memory holds a part of
// it, at a speed between DRAM and SSD. The model computes how many servers with CXL memory replace
// a number without it, and the saving.
//
// Instances: a server with fewer GiB per CPU than instances ask for cannot sell all its CPUs. With
// CXL memory it can, at a discount.
//
// Neither is a measurement. Pure functions. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

struct ServerCost {
  double dram_speed = 10;     // speed of the job with its data in DRAM; on SSD it is 1
  double cxl_speed = 8;       // with its data in CXL memory
  double capacity_ratio = 2;  // DRAM / CXL memory of one server
  // Cost of a server with CXL memory / cost of a server without it, over its lifetime. Nothing:
  // prices are unknown.
  std::optional<double> cost_ratio = {};
};

struct ServerSaving {
  double servers = 1;     // servers with CXL memory that replace one server without it
  double break_even = 1;  // the cost ratio at which nothing is saved
  // A share of all cost; negative: more is spent. Nothing: no cost ratio.
  std::optional<double> saving = {};
};

// Finds the number of servers that take the same time. n servers with D bytes of DRAM each read W
// bytes in nD / dram_speed + (W - nD), at SSD's speed of 1. With CXL memory, a further nD /
// capacity_ratio bytes are read at cxl_speed instead of from SSD.
// Errors: invalid: a speed below SSD's; CXL memory faster than DRAM; a ratio that is not positive;
// a number that is not finite.
Result<ServerSaving> server_saving(const ServerCost& cost);

struct CostChange {
  std::string name;  // the changed input: "cxl_speed"
  double value = 0;
  std::optional<ServerSaving> result;  // nothing: outside the model's range
  std::string reason;                  // why there is no result
};
// Changes each known input by `change` (a share), down and up.
Result<std::vector<CostChange>> sensitivity(const ServerCost& cost, double change = 0.1);

struct InstanceCost {
  double instance_gib = 4;  // per CPU, as instances ask for
  double server_gib = 3;    // DRAM per CPU of the server
  // Discount on instances in CXL memory; nothing: prices are unknown.
  std::optional<double> discount = {};
};

struct InstanceGain {
  double stranded = 0;  // CPUs that cannot be sold for lack of memory, as a share of all
  double cxl_gib = 0;   // CXL memory per CPU of the server, enough to sell all CPUs
  // Additional revenue from CXL memory, as a share; nothing: no discount is given.
  std::optional<double> revenue = {};
};
// Errors: invalid: a number that is not positive or not finite; a discount outside 0 to 1.
Result<InstanceGain> instance_gain(const InstanceCost& cost);

}  // namespace HEADRACE_API headrace
