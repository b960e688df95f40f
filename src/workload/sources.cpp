#include "workload/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "workload/mapped_file.h"

namespace headrace {
namespace {

class MemorySource final : public BlockSource {
 public:
  MemorySource(const QueryPlan& plan, std::vector<const Object*> columns)
      : plan_(plan), columns_(std::move(columns)) {}

  Result<std::span<const std::byte>> get(unsigned /*worker*/, std::size_t column,
                                         std::uint64_t chunk) override {
    const Extent block = plan_.block(*columns_[column], column, chunk);
    return std::span<const std::byte>(block.memory(), block.length.value);
  }
  Status finish(unsigned /*worker*/) override { return {}; }

 private:
  const QueryPlan& plan_;
  const std::vector<const Object*> columns_;
};

class CopyingSource final : public BlockSource {
 public:
  explicit CopyingSource(const SourceContext& context)
      : context_(context), buffers_(context.options.threads) {}

  Status allocate_buffers() {
    const QueryPlan& plan = context_.plan;
    for (ColumnBuffers& buffers : buffers_) {
      for (const Column& column : plan.columns) {
        HEADRACE_TRY(std::unique_ptr<Buffer> buffer,
                     allocate(context_.mover.machine(), Bytes{plan.chunk_rows * column.width},
                              Placement::on(context_.options.fast)));
        buffers.push_back(std::move(buffer));
      }
    }
    return {};
  }

  Result<std::span<const std::byte>> get(unsigned worker, std::size_t column,
                                         std::uint64_t chunk) override {
    const File& file = *context_.plan.files[column];
    const Extent from = context_.plan.block(file, column, chunk);
    const Extent to = {buffers_[worker][column].get(), 0, from.length};
    const Transfer transfer =
        context_.mover.copy(to, from, {.priority = Priority::demand, .hint = CopyHint::keep});
    if (Status outcome = wait_for(transfer, context_.stop); !outcome) {
      return std::unexpected(name_file(std::move(outcome).error(), file, context_.plan));
    }
    return std::span<const std::byte>(to.memory(), to.length.value);
  }
  Status finish(unsigned /*worker*/) override { return {}; }

 private:
  const SourceContext context_;
  std::vector<ColumnBuffers> buffers_;  // [worker][column]
};

class MappedSource final : public BlockSource {
 public:
  explicit MappedSource(const QueryPlan& plan) : plan_(plan) {}

  Status map_files() {
    for (const File* file : plan_.files) {
      HEADRACE_TRY(std::unique_ptr<MappedFile> opened, MappedFile::map(*file));
      files_.push_back(std::move(opened));
    }
    return {};
  }

  Result<std::span<const std::byte>> get(unsigned /*worker*/, std::size_t column,
                                         std::uint64_t chunk) override {
    const Extent block = plan_.block(*plan_.files[column], column, chunk);
    return files_[column]->bytes().subspan(block.offset, block.length.value);
  }

  Status finish(unsigned /*worker*/) override {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i]->lost()) {
        return fail(ErrorCode::io, "{} could not be read to its end; was it cut short?",
                    plan_.files[i]->path().string());
      }
    }
    return {};
  }

 private:
  const QueryPlan& plan_;
  std::vector<std::unique_ptr<MappedFile>> files_;
};

class CachedSource final : public BlockSource {
 public:
  CachedSource(const SourceContext& context, Cache& cache, std::vector<const Object*> objects)
      : context_(context),
        cache_(cache),
        objects_(std::move(objects)),
        held_(context.options.threads) {
    std::vector<Extent> planned;
    planned.reserve(context_.plan.chunks() * objects_.size());
    for (std::uint64_t chunk = 0; chunk < context_.plan.chunks(); ++chunk) {
      for (std::size_t column = 0; column < objects_.size(); ++column) {
        planned.push_back(context_.plan.block(*objects_[column], column, chunk));
      }
    }
    PrefetchOptions prefetch = context_.options.prefetch;
    if (!prefetch.initiator) prefetch.initiator = context_.options.fast;
    prefetch_ = cache_.prefetch(planned, prefetch);
  }

  Result<std::span<const std::byte>> get(unsigned worker, std::size_t column,
                                         std::uint64_t chunk) override {
    const Object& object = *objects_[column];
    Block block = cache_.access(context_.plan.block(object, column, chunk),
                                {.initiator = context_.options.fast});
    auto bytes = wait_in_steps(
        context_.stop, [&](Nanoseconds step) { return block.wait(step); },
        [&] { return block.state() == BlockState::filling; });
    if (!bytes) return std::unexpected(name_file(std::move(bytes).error(), object, context_.plan));
    held_[worker].push_back(std::move(block));
    return *bytes;
  }

  Status finish(unsigned worker) override {
    held_[worker].clear();
    return {};
  }

  void end() override {
    for (std::vector<Block>& blocks : held_) blocks.clear();
    prefetch_.cancel();
  }

 private:
  const SourceContext context_;
  Cache& cache_;
  const std::vector<const Object*> objects_;
  std::vector<std::vector<Block>> held_;  // [worker]
  Prefetch prefetch_;
};

}  // namespace

std::unique_ptr<BlockSource> memory_source(const QueryPlan& plan,
                                           std::vector<const Object*> columns) {
  return std::make_unique<MemorySource>(plan, std::move(columns));
}

Result<std::unique_ptr<BlockSource>> copying_source(const SourceContext& context) {
  auto source = std::make_unique<CopyingSource>(context);
  HEADRACE_TRY_STATUS(source->allocate_buffers());
  return source;
}

Result<std::unique_ptr<BlockSource>> mapped_source(const QueryPlan& plan) {
  auto source = std::make_unique<MappedSource>(plan);
  HEADRACE_TRY_STATUS(source->map_files());
  return source;
}

std::unique_ptr<BlockSource> cached_source(const SourceContext& context, Cache& cache,
                                           std::vector<const Object*> objects) {
  return std::make_unique<CachedSource>(context, cache, std::move(objects));
}

Status wait_for(const Transfer& transfer, const std::function<bool()>& stop) {
  const auto outcome = wait_in_steps(
      stop, [&](Nanoseconds step) { return transfer.wait(step); },
      [&] { return !transfer.done(); });
  if (!transfer.done()) {
    transfer.cancel();
    // Its memory is freed after this: an engine that still writes to it would corrupt whatever
    // comes next, so that going on is worse than ending here.
    (void)transfer.wait(kBlockBound);
    CHECK(transfer.done());
  }
  if (!outcome) return std::unexpected(outcome.error());
  return {};
}

Result<ColumnBuffers> load_columns(const SourceContext& context, NodeId node) {
  ColumnBuffers buffers;
  for (std::size_t i = 0; i < context.plan.columns.size(); ++i) {
    const File& file = *context.plan.files[i];
    HEADRACE_TRY(
        std::unique_ptr<Buffer> buffer,
        allocate(context.mover.machine(), std::max(file.size(), 1_B), Placement::on(node)));
    const Transfer transfer = context.mover.copy({buffer.get(), 0, file.size()}, whole(file));
    if (Status outcome = wait_for(transfer, context.stop); !outcome) {
      return std::unexpected(name_file(std::move(outcome).error(), file, context.plan));
    }
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

Error name_file(Error error, const Object& object, const QueryPlan& plan) {
  if (error.code == ErrorCode::cancelled) return error;
  for (const File* file : plan.files) {
    if (file != &object || error.message.find(file->path().string()) != std::string::npos) continue;
    error.message = fmt::format("cannot read {}: {}", file->path().string(), error.message);
  }
  return error;
}

}  // namespace headrace
