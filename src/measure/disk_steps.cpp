#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/file.h"
#include "headrace/random.h"
#include "measure/carry.h"
#include "measure/measuring_file.h"
#include "measure/samples.h"
#include "measure/steps.h"

namespace headrace {
namespace {

constexpr unsigned kReads = 3;
// A sample reads so much, or what a slow disk does in about its share of a brief time.
constexpr Bytes kMostPerSample = 64_MiB;
constexpr std::uint64_t kMostBlocks = 1024;

struct ReadPoint {
  Bytes block;
  std::size_t depth;
};
// One access at a time shows the latency, several the device's parallelism, large blocks its
// bandwidth.
constexpr ReadPoint kPoints[] = {{4_KiB, 1}, {4_KiB, 32}, {64_KiB, 1}, {64_KiB, 16},
                                 {1_MiB, 1}, {1_MiB, 4},  {1_MiB, 16}};

// Random blocks of the file, each at most once, into as many blocks of the buffer.
std::vector<Piece> random_reads(const File& file, const Buffer& buffer, EngineId engine,
                                const ReadPoint& point, Random& random) {
  const std::uint64_t slots = kMeasuringFile / point.block;
  const std::uint64_t most = std::min(kMostPerSample / point.block, kMostBlocks);
  // With one access at a time fewer suffice, and more would take too long on a slow disk.
  const std::uint64_t count = point.depth == 1 ? std::min<std::uint64_t>(most, 128) : most;
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t stride = slots / count;
    const std::uint64_t slot = i * stride + random.below(stride);
    pieces.push_back({.from = {&file, slot * point.block.value, point.block},
                      .to = {&buffer, i * point.block.value, point.block},
                      .engine = engine,
                      .tag = i});
  }
  for (std::size_t i = pieces.size(); i > 1; --i) {
    std::swap(pieces[i - 1].from, pieces[random.below(i)].from);
  }
  return pieces;
}

struct Disk {
  const Engine* engine;
  Backend* backend;
  std::unique_ptr<File> file;
  std::unique_ptr<Buffer> buffer;
};

RateRow row_of(const Brief& brief, const std::string& what) {
  return {.what = what, .where = brief.directory.string()};
}

void read_point(Brief& brief, const Disk& disk, const ReadPoint& point) {
  RateRow row = row_of(brief, "disk read");
  row.where = fmt::format("{}, {} x {}", disk.engine->name, to_string(point.block), point.depth);
  row.from = disk.file->node();
  row.to = disk.buffer->node();
  row.engine = disk.engine->id;
  const std::size_t depth = std::min(point.depth, disk.backend->capabilities().max_in_flight);
  Random random(point.depth + point.block.value);
  std::vector<double> rates;
  for (unsigned i = 0; i < kReads; ++i) {
    const auto pieces = random_reads(*disk.file, *disk.buffer, disk.engine->id, point, random);
    const Status cold = disk.file->direct() ? Status{} : make_cold(*disk.file);
    const auto took =
        cold ? carry(*disk.backend, pieces, depth) : std::unexpected<Error>(cold.error());
    if (!took) {
      brief.rows.push_back(row_without(row, took.error().message));
      return;
    }
    rates.push_back((point.block * pieces.size() / *took).value);
  }
  brief.rows.push_back(row_with(row, rates));
}

Result<Disk> open_disk(Brief& brief) {
  Disk disk{};
  const auto memory = std::ranges::find_if(brief.machine.nodes, &Node::byte_addressable);
  if (memory == brief.machine.nodes.end()) {
    return fail(ErrorCode::absent, "no memory node to read into; measure a discovered machine");
  }
  HEADRACE_TRY(disk.buffer, allocate(brief.machine, kMostPerSample, Placement::on(memory->id)));
  HEADRACE_TRY(disk.file, measuring_file(brief.machine, brief.directory));
  for (const Engine& engine : brief.machine.engines) {
    if (engine.kind != EngineKind::ssd || engine.home != disk.file->node()) continue;
    disk.engine = &engine;
    disk.backend = brief.backends.find(engine.id);
  }
  if (disk.engine == nullptr || disk.backend == nullptr) {
    return fail(
        ErrorCode::absent,
        "no storage engine for the disk behind {}; discover the machine with this directory",
        brief.directory.string());
  }
  return disk;
}

void measure_disk(Brief& brief) {
  const auto disk = open_disk(brief);
  if (!disk) {
    brief.rows.push_back(row_without(row_of(brief, "disk read"), disk.error().message));
    return;
  }
  RateRow written = row_of(brief, "disk write");
  written.from = disk->buffer->node();
  written.to = disk->file->node();
  const auto rate = fill(*disk->file);
  if (!rate) {
    brief.rows.push_back(row_without(written, rate.error().message));
    return;
  }
  brief.rows.push_back(row_with(written, std::vector{*rate}));
  for (const ReadPoint& point : kPoints) read_point(brief, *disk, point);
  RateExperiment copy{
      .engine = disk->engine->id,
      .to = whole(*disk->buffer),
      .from = whole(*disk->file).part(0, kMostPerSample),
      .what = "copy",
      .where = fmt::format("{}, disk to node {}", disk->engine->name, raw(disk->buffer->node()))};
  if (disk->file->direct()) {
    measure_rate(brief, copy);
  } else {
    RateRow row = row_of(brief, copy.what);
    brief.rows.push_back(row_without(row,
                                     "the file system has no direct I/O: repeated reads "
                                     "would be of the page cache"));
  }
}

}  // namespace

std::vector<Step> disk_steps() { return {{.run = measure_disk, .left_out = {}}}; }

}  // namespace headrace
