// SPDX-License-Identifier: Apache-2.0
// A page on its way to a log: copied with its checksum, and what changed in it as a delta. By an
// Intel DSA device where there is one, else by the calling core.
#include <cstdio>
#include <vector>

#include "headrace/headrace.h"

using namespace headrace;

int complain(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int main() {
  DsaClient client = DsaClient::open("dsa0").value_or(DsaClient());
  std::vector<std::byte> page(8192, std::byte{1});  // as the disk has it
  std::vector<std::byte> changed = page;
  changed[100] = changed[5000] = std::byte{2};
  std::vector<std::byte> log(page.size());
  std::vector<std::byte> record(800);

  // The first two do not depend on each other; the third reads what the first wrote.
  const std::vector<DsaOperation> program = {
      {.what = dsa::CopyCrc32c{.to = log, .from = changed}},
      {.what = dsa::CreateDelta{.old = page, .changed = changed, .record = record}},
      {.what = dsa::Compare{.bytes = log, .with = changed}, .fenced = true}};
  const auto found = client.run(program);
  for (const auto& each : found) {
    if (!each) return complain(each.error());
  }
  const auto delta = found[1]->delta;  // nothing where it does not fit
  if (!delta) return complain({ErrorCode::exhausted, "too much of the page changed"});
  const auto applied = client.run({dsa::ApplyDelta{.to = page, .record = *delta}});
  if (!applied) return complain(applied.error());

  const bool same = page == changed && !found[2]->difference;
  const DsaStats stats = client.stats();
  std::printf("CRC-32C %08x, a delta of %zu bytes, %s; by a device %llu, by the core %llu\n",
              *found[0]->crc, delta->size(), same ? "the same page" : "different pages",
              static_cast<unsigned long long>(stats.by_device),
              static_cast<unsigned long long>(stats.by_cpu));
  return same ? 0 : 1;
}
