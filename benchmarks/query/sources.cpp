// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "benchmarks/query/input/mapped_file.h"
#include "benchmarks/query/input/supervise.h"
#include "core/fail.h"

namespace headrace {
namespace {

class MemorySource final : public BlockSource {
 public:
  MemorySource(const QueryScan& scan, std::vector<const Object*> columns)
      : scan_(scan), columns_(std::move(columns)) {}

  Result<std::span<const std::byte>> get(unsigned /*slot*/, std::size_t column,
                                         std::uint64_t chunk) override {
    const Extent block = scan_.block(*columns_[column], column, chunk);
    return std::span<const std::byte>(block.memory(), block.length.value);
  }
  Status finish(unsigned /*slot*/) override { return {}; }

 private:
  const QueryScan& scan_;
  const std::vector<const Object*> columns_;
};

class CopyingSource final : public BlockSource {
 public:
  explicit CopyingSource(const SourceContext& context)
      : context_(context), buffers_(context.options.slots()) {}

  Status allocate_buffers() {
    const QueryScan& scan = context_.scan;
    for (ColumnBuffers& buffers : buffers_) {
      for (const Column& column : scan.columns) {
        HEADRACE_TRY(
            std::unique_ptr<Buffer> buffer,
            allocate_for_cpus(context_.mover.machine(), Bytes{scan.chunk_rows * column.width},
                              Placement::on(context_.options.fast)));
        buffers.push_back(std::move(buffer));
      }
    }
    return {};
  }

  Result<std::span<const std::byte>> get(unsigned slot, std::size_t column,
                                         std::uint64_t chunk) override {
    const File& file = *context_.scan.files[column];
    const Extent from = context_.scan.block(file, column, chunk);
    const Extent to = {buffers_[slot][column].get(), 0, from.length};
    const Transfer transfer =
        context_.mover.copy(to, from, {.priority = Priority::demand, .hint = CopyHint::keep});
    if (Status outcome = wait_for(transfer, context_); !outcome) {
      return Unexpected(name_file(std::move(outcome).error(), file, context_.scan));
    }
    return std::span<const std::byte>(to.memory(), to.length.value);
  }
  Status finish(unsigned /*slot*/) override { return {}; }

 private:
  const SourceContext& context_;
  std::vector<ColumnBuffers> buffers_;  // [slot][column]
};

class MappedSource final : public BlockSource {
 public:
  explicit MappedSource(const QueryScan& scan) : scan_(scan) {}

  Status map_files() {
    for (const auto& file : scan_.files) {
      HEADRACE_TRY(std::unique_ptr<MappedFile> opened, MappedFile::map(*file));
      files_.push_back(std::move(opened));
    }
    return {};
  }

  Result<std::span<const std::byte>> get(unsigned /*slot*/, std::size_t column,
                                         std::uint64_t chunk) override {
    const Extent block = scan_.block(*scan_.files[column], column, chunk);
    return files_[column]->bytes().subspan(block.offset, block.length.value);
  }

  Status finish(unsigned /*slot*/) override {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i]->lost()) {
        return fail(ErrorCode::io, "{} could not be read to its end; was it cut short?",
                    scan_.files[i]->path().string());
      }
    }
    return {};
  }

 private:
  const QueryScan& scan_;
  std::vector<std::unique_ptr<MappedFile>> files_;
};

class CachedSource final : public BlockSource {
 public:
  CachedSource(const SourceContext& context, Cache& cache, std::vector<const Object*> objects)
      : context_(context),
        cache_(cache),
        objects_(std::move(objects)),
        held_(context.options.slots()) {
    std::vector<Extent> planned;
    planned.reserve(context_.scan.chunks() * objects_.size());
    const std::uint64_t end = context_.scan.end_chunk();
    for (std::uint64_t chunk = context_.scan.first_chunk(); chunk < end; ++chunk) {
      for (std::size_t column = 0; column < objects_.size(); ++column) {
        planned.push_back(context_.scan.block(*objects_[column], column, chunk));
      }
    }
    PrefetchOptions prefetch = context_.options.prefetch;
    if (!prefetch.initiator) prefetch.initiator = context_.options.fast;
    prefetch_ = cache_.prefetch(planned, prefetch);
  }

  Result<std::span<const std::byte>> get(unsigned slot, std::size_t column,
                                         std::uint64_t chunk) override {
    const Object& object = *objects_[column];
    Block block = cache_.access(context_.scan.block(object, column, chunk),
                                {.initiator = context_.options.fast, .plan = &prefetch_});
    auto bytes = block.wait(kWaitStep);
    while (!bytes && block.state() == BlockState::filling) {
      if (context_.run.stop) return fail(ErrorCode::cancelled, "stopped");
      bytes = block.wait(kWaitStep);
    }
    // It may have ended between the last look and state().
    if (!bytes) bytes = block.wait(Nanoseconds{0});
    if (!bytes) return Unexpected(name_file(std::move(bytes).error(), object, context_.scan));
    held_[slot].push_back(std::move(block));
    return *bytes;
  }

  Status finish(unsigned slot) override {
    held_[slot].clear();
    return {};
  }

  void end() override {
    for (std::vector<Block>& blocks : held_) blocks.clear();
    prefetch_.cancel();
  }

 private:
  const SourceContext& context_;
  Cache& cache_;
  const std::vector<const Object*> objects_;
  std::vector<std::vector<Block>> held_;  // [slot]
  Prefetch prefetch_;
};

}  // namespace

std::unique_ptr<BlockSource> memory_source(const SourceContext& context,
                                           std::vector<const Object*> columns) {
  return std::make_unique<MemorySource>(context.scan, std::move(columns));
}

Result<std::unique_ptr<BlockSource>> copying_source(const SourceContext& context) {
  auto source = std::make_unique<CopyingSource>(context);
  HEADRACE_TRY_STATUS(source->allocate_buffers());
  return source;
}

Result<std::unique_ptr<BlockSource>> mapped_source(const SourceContext& context) {
  auto source = std::make_unique<MappedSource>(context.scan);
  HEADRACE_TRY_STATUS(source->map_files());
  return source;
}

std::unique_ptr<BlockSource> cached_source(const SourceContext& context, Cache& cache,
                                           std::vector<const Object*> objects) {
  return std::make_unique<CachedSource>(context, cache, std::move(objects));
}

Status wait_for(const Transfer& transfer, const SourceContext& context) {
  while (!transfer.done() && !context.run.stop) (void)transfer.wait(kWaitStep);
  if (!transfer.done()) {
    transfer.cancel();
    while (!transfer.done()) (void)transfer.wait();
  }
  if (auto outcome = transfer.wait(); !outcome) return Unexpected(outcome.error());
  return {};
}

void quiesce(Cache& cache, std::span<const Object* const> objects) {
  cache.clear();
  for (const Object* object : objects) {
    while (!cache.forget(*object)) {
    }
  }
}

Result<ColumnBuffers> load_columns(const SourceContext& context, NodeId node) {
  ColumnBuffers buffers;
  for (std::size_t i = 0; i < context.scan.columns.size(); ++i) {
    const File& file = *context.scan.files[i];
    const Extent part = context.scan.in_file(i);
    HEADRACE_TRY(std::unique_ptr<Buffer> buffer,
                 allocate_for_cpus(context.mover.machine(), std::max(part.length, 1_B),
                                   Placement::on(node)));
    const Transfer transfer = context.mover.copy({buffer.get(), 0, part.length}, part);
    if (Status outcome = wait_for(transfer, context); !outcome) {
      return Unexpected(name_file(std::move(outcome).error(), file, context.scan));
    }
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

Bytes slab_for(Bytes block, std::size_t shards) {
  constexpr std::uint64_t kBlocks = 8;  // of a slab
  return std::max(CacheOptions{}.slab, block * (kBlocks * shards));
}

void add(CacheStats& sum, const CacheStats& part) {
  sum.hits += part.hits;
  sum.inflight_hits += part.inflight_hits;
  sum.misses += part.misses;
  sum.prefetched += part.prefetched;
  sum.first_uses += part.first_uses;
  sum.late += part.late;
  sum.wasted_bytes += part.wasted_bytes;
  sum.evictions += part.evictions;
  sum.refusals += part.refusals;
  sum.failures += part.failures;
  sum.bytes_used += part.bytes_used;
  sum.blocks += part.blocks;
}

Error name_file(Error error, const Object& object, const QueryScan& scan) {
  if (error.code == ErrorCode::cancelled) return error;
  for (const auto& file : scan.files) {
    if (file.get() != &object || error.message.find(file->path().string()) != std::string::npos)
      continue;
    error.message = fmt::format("cannot read {}: {}", file->path().string(), error.message);
  }
  return error;
}

}  // namespace headrace
