// SPDX-License-Identifier: Apache-2.0
// Keeps what was computed for a prompt in memory and on disk, as an engine for language models
// would, and brings it back layer by layer for a prompt that begins alike.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <vector>

#include "headrace/headrace.h"

using namespace headrace;

namespace {

int complain(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int run(const std::filesystem::path& folder) {
  const auto machine = Machine::discover({.storage = {folder.string()}});
  if (!machine) return complain(machine.error());
  const auto backends = Backends::open(*machine);
  if (!backends) return complain(backends.error());
  Mover mover(*machine, *backends);

  const kvcache::Geometry geometry{.model = "small", .layers = 8, .kv_heads = 2, .head_dim = 64};
  const Bytes block = geometry.block();
  kvcache::StoreOptions options{.geometry = geometry};
  options.tiers = {{.budget = block * 16, .memory = Placement::on(NodeKind::dram)},
                   {.budget = block * 256, .folder = folder / "kv"}};
  const auto store = kvcache::Store::open(mover, options);
  if (!store) return complain(store.error());

  // The engine's pool, and a prompt of 32 blocks that was computed into the first half of it.
  const auto pool = allocate(*machine, block * 64, Placement::on(NodeKind::dram));
  if (!pool) return complain(pool.error());
  std::memset((*pool)->memory(), 42, (block * 32).value);
  std::vector<std::uint32_t> prompt(32 * geometry.block_tokens);
  std::iota(prompt.begin(), prompt.end(), 0U);
  const auto keys = kvcache::keys(geometry, prompt);
  const auto stored = (*store)->store(keys, whole(**pool).part(0, block * 32));
  if (!stored) return complain(stored.error());
  const auto counts = stored->wait();  // until then these bytes must not change
  if (!counts) return complain(counts.error());

  // Another prompt that begins alike: its first 24 blocks need not be computed.
  prompt[24 * geometry.block_tokens] += 1;
  const kvcache::Match found = (*store)->match(prompt);  // holds them
  const auto load =
      (*store)->load(found.keys(), whole(**pool).part((block * 32).value, block * found.size()));
  if (!load) return complain(load.error());
  for (unsigned layer = 0; layer < load->layers(); ++layer) {
    // An IO error: load->leading() says how many blocks are good all the same.
    if (const Status there = load->wait_layer(layer); !there) return complain(there.error());
    // ... compute this layer here, while the next ones load ...
  }
  const bool same = std::memcmp((*pool)->memory(), (*pool)->memory() + (block * 32).value,
                                (block * found.size()).value) == 0;
  std::printf("%zu blocks of %s stored, %zu found: %s\n", counts->stored, to_string(block).c_str(),
              found.size(), same ? "the same bytes" : "different bytes");
  if (const Status written = (*store)->flush(); !written) return complain(written.error());
  return same && counts->stored == 32 && found.size() == 24 ? 0 : 1;
}

}  // namespace

int main() {
  // A real one would be a folder on your SSD that stays.
  std::string folder = (std::filesystem::temp_directory_path() / "headrace-kv-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const int code = run(folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}
