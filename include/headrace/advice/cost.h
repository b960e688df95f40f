// SPDX-License-Identifier: Apache-2.0
// What slower, cheaper memory is worth: two models of a talk as arithmetic.
//
// Servers: a job whose working set exceeds DRAM reads the rest from SSD; CXL memory holds a part of
// it at a speed between both. How many servers with CXL do what one without does, and what that
// saves. Instances: a server with fewer GiB per CPU than instances ask for cannot sell all its
// CPUs; on CXL memory it can, at a discount. Neither is a measurement. Pure functions. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

struct ServerCost {
  double dram_speed = 10;     // of the job with its data in DRAM; 1: on SSD
  double cxl_speed = 8;       // with its data in CXL memory
  double capacity_ratio = 2;  // DRAM to CXL of one server
  // A server with CXL to one without, all of its life; nothing: prices are not known.
  std::optional<double> cost_ratio = {};
};

struct ServerSaving {
  double servers = 1;     // with CXL, for one without
  double break_even = 1;  // the cost ratio at which nothing is saved
  // A share of all cost; negative: it costs more. Nothing without a cost ratio.
  std::optional<double> saving = {};
};

// With D bytes of DRAM and W of data, time without CXL of n servers is nD / dram_speed + W - nD,
// and with CXL a further nD / capacity_ratio is read at cxl_speed; both times set equal. invalid:
// speeds below SSD's, CXL memory faster than DRAM, ratios that are not positive, what is not
// finite.
Result<ServerSaving> server_saving(const ServerCost& cost);

struct CostChange {
  std::string name;  // the input that was changed: "cxl_speed"
  double value = 0;
  std::optional<ServerSaving> result;  // nothing: out of the model's range
  std::string reason;                  // then why
};
// Each input that is known a share less and a share more.
Result<std::vector<CostChange>> sensitivity(const ServerCost& cost, double change = 0.1);

struct InstanceCost {
  double instance_gib = 4;  // per CPU, as instances ask for
  double server_gib = 3;    // per CPU, as the server has in DRAM
  // On instances in CXL memory; nothing: prices are not known.
  std::optional<double> discount = {};
};

struct InstanceGain {
  double stranded = 0;  // CPUs that cannot be sold for want of memory, as a share of all
  double cxl_gib = 0;   // of CXL memory per CPU of the server, that sells them all
  // More than without CXL, as a share; nothing without a discount.
  std::optional<double> revenue = {};
};
// invalid: not positive or not finite, a discount outside 0 to 1.
Result<InstanceGain> instance_gain(const InstanceCost& cost);

}  // namespace HEADRACE_API headrace
