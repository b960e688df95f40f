// What the DSA experiments measure of the cores of this host: copies between nodes, and STREAM
// beside a device. Thread-compatible.
#pragma once

#include <vector>

#include "headrace/measure.h"
#include "headrace/result.h"
#include "measure/dsa_host.h"
#include "measure/dsa_points.h"

namespace headrace {

// Bytes per second of each round: row.threads cores of row.from copy row.bytes to row.to, an equal
// part each. absent: not so many cores there; as allocate().
Result<std::vector<double>> copy_by_cores(const Machine& machine, const DsaRow& row,
                                          unsigned rounds);

// The first thread of the point copies while the cores of its source read and write as STREAM's
// triad does. Bytes per second of each round: of STREAM, by its count, where row.method is
// "stream"; else of the copies.
Result<std::vector<double>> run_beside_stream(const DsaHost& host, const DsaPoint& point,
                                              unsigned rounds);

}  // namespace headrace
