// SPDX-License-Identifier: Apache-2.0
#include "kvcache/keys/geometry.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>

#include "core/fail.h"
#include "kvcache/keys/blake2b.h"
#include "kvcache/keys/sum.h"

namespace headrace::kvcache {
namespace {

Key as_key(Blake2b& hash) {
  const auto digest = hash.digest();
  Key key;
  std::memcpy(&key.low, digest.data(), 8);
  std::memcpy(&key.high, digest.data() + 8, 8);
  return key;
}

}  // namespace

Bytes Geometry::fragment() const {
  return Bytes{1} * tensors * kv_heads * head_dim * element_bytes * block_tokens;
}

Bytes Geometry::block() const { return fragment() * layers; }

std::string_view to_string(Layout layout) {
  return layout == Layout::page_first ? "page_first" : "layer_first";
}

std::string_view to_string(WriteBack write) {
  switch (write) {
    case WriteBack::leaving: return "leaving";
    case WriteBack::idle: return "idle";
    case WriteBack::stored: break;
  }
  return "stored";
}

std::string_view to_string(Verify verify) { return verify == Verify::all ? "all" : "found"; }

Status check(const Geometry& g) {
  std::uint64_t bytes = 1;
  for (const unsigned factor :
       {g.tensors, g.kv_heads, g.head_dim, g.element_bytes, g.block_tokens, g.layers}) {
    if (factor == 0) {
      return fail(ErrorCode::invalid,
                  "a geometry with a count of 0; give layers, kv_heads, head_dim, element_bytes, "
                  "block_tokens and tensors");
    }
    if (bytes > kLargestBlock.value / factor) {
      return fail(ErrorCode::invalid, "a block of more than {}; give fewer block_tokens",
                  to_string(kLargestBlock));
    }
    bytes *= factor;
  }
  if (g.any_size && g.layers != 1) {
    return fail(ErrorCode::invalid, "blocks of any size with {} layers; give 1", g.layers);
  }
  return {};
}

constexpr std::string_view kAnySize = "headrace kv sizes\n";

Key root_key(const Geometry& g) {
  // Names last, with their lengths, so that no two geometries have one text.
  const std::string text =
      fmt::format("headrace kv 1\n{} {} {} {} {} {}\n{} {}\n{}{}", g.layers, g.kv_heads, g.head_dim,
                  g.element_bytes, g.block_tokens, g.tensors, g.model.size(), g.revision.size(),
                  g.model, g.revision);
  Blake2b hash(sizeof(Key));
  if (g.any_size) hash.add(std::as_bytes(std::span(kAnySize)));
  hash.add(std::as_bytes(std::span(text)));
  return as_key(hash);
}

namespace {

// As long as a key, which comes first in every other hashed text. So no salt can produce the keys
// of some tokens.
constexpr std::string_view kSalted = "headrace kv salt";
constexpr std::string_view kNamed = "headrace kv name";
static_assert(kSalted.size() == sizeof(Key) && kNamed.size() == sizeof(Key));

Key salted_root(const Geometry& geometry, std::string_view salt) {
  const Key root = root_key(geometry);
  if (salt.empty()) return root;
  Blake2b hash(sizeof(Key));
  hash.add(std::as_bytes(std::span(kSalted)));
  hash.add(std::as_bytes(std::span(&root, 1)));
  hash.add(std::as_bytes(std::span(salt)));
  return as_key(hash);
}

}  // namespace

Key key_of(std::span<const std::byte> name) {
  if (name.size() == sizeof(Key)) {
    Key key;
    std::memcpy(&key, name.data(), sizeof key);
    return key;
  }
  Blake2b hash(sizeof(Key));
  hash.add(std::as_bytes(std::span(kNamed)));
  hash.add(name);
  return as_key(hash);
}

#ifdef __x86_64__
namespace {

// Whether key_of() hashes the name as one chunk.
bool is_short(std::string_view name) {
  return name.size() != sizeof(Key) && kNamed.size() + name.size() <= Blake2b::kChunk;
}

// The keys of four names. Requires: is_short() of each; AVX2.
void keys_of_four(const std::string_view* names, Key* keys) {
  std::uint64_t chunks[16][4];
  std::uint64_t lengths[4];
  for (unsigned lane = 0; lane < 4; ++lane) {
    std::uint64_t chunk[16] = {};
    std::memcpy(chunk, kNamed.data(), kNamed.size());
    std::memcpy(chunk + 2, names[lane].data(), names[lane].size());
    lengths[lane] = kNamed.size() + names[lane].size();
    for (unsigned i = 0; i < 16; ++i) chunks[i][lane] = chunk[i];
  }
  std::uint64_t digests[2][4];
  blake2b_lanes_avx2(chunks, lengths, sizeof(Key), digests);
  for (unsigned lane = 0; lane < 4; ++lane) {
    const std::uint64_t digest[2] = {digests[0][lane], digests[1][lane]};
    std::memcpy(keys + lane, digest, sizeof(Key));
  }
}

}  // namespace
#endif

std::vector<Key> keys_of(std::span<const std::string_view> names) {
  std::vector<Key> keys(names.size());
  std::size_t done = 0;
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2");
  while (avx2 && done + 4 <= names.size() &&
         std::ranges::all_of(names.subspan(done, 4), is_short)) {
    keys_of_four(&names[done], &keys[done]);
    done += 4;
  }
#endif
  for (; done < names.size(); ++done) keys[done] = key_of(std::as_bytes(std::span(names[done])));
  return keys;
}

std::vector<Key> keys(const Geometry& geometry, std::span<const std::uint32_t> tokens,
                      std::string_view salt) {
  std::vector<Key> result;
  if (geometry.block_tokens == 0) return result;
  result.reserve(tokens.size() / geometry.block_tokens);
  Key before = salted_root(geometry, salt);
  for (; tokens.size() >= geometry.block_tokens; tokens = tokens.subspan(geometry.block_tokens)) {
    Blake2b hash(sizeof(Key));
    hash.add(std::as_bytes(std::span(&before, 1)));
    hash.add(std::as_bytes(tokens.first(geometry.block_tokens)));
    before = result.emplace_back(as_key(hash));
  }
  return result;
}

std::uint64_t fragment_sum(const Key& key, unsigned layer, std::span<const std::byte> bytes) {
  return plain_sum(bytes, (key.low ^ std::rotl(key.high, 32)) + layer);
}

}  // namespace headrace::kvcache
