// SPDX-License-Identifier: Apache-2.0
// headrace-bench-gpu: the public Mover and the KV store beside the driver alone, on the first GPU.
//
//     headrace-bench-gpu [FOLDER [PART]]      PART: pinned, small, plain, fragments, kv,
//                                                   disk; or measure: `measure gpu` within 60 s
//
// A line for each: wait() for copies of pinned and plain memory, small ones, many fragments, loads
// of KV blocks from pinned DRAM and from FOLDER, a file of FOLDER cold and warm. Medians of 7, with
// least and most (HEADRACE_BENCH_REPETITIONS). CPU is that of the whole process.
// HEADRACE_LIBCUDA=libheadrace-fake-cuda.so and HEADRACE_FAKE_CUDA=h200 give the costs of a call on
// an H200 without one: such lines are `emulated`.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/cuda.h"
#include "headrace/backend.h"
#include "headrace/buffer.h"
#include "headrace/file.h"
#include "headrace/kvcache/store.h"
#include "headrace/measure.h"
#include "headrace/mover.h"
#include "headrace/random.h"

namespace headrace {
namespace {

int number(const char* variable, int usual) {
  const char* const said = std::getenv(variable);
  return said == nullptr ? usual : std::atoi(said);
}

const int kRepetitions = number("HEADRACE_BENCH_REPETITIONS", 7);

double now() { return static_cast<double>(system_clock().now().count()) * 1e-9; }

double cpu() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

struct Times {
  double least = 0;
  double median = 0;
  double most = 0;
  double cpu = 0;  // median
};

Times time(int repetitions, const std::function<void()>& prepare,
           const std::function<void()>& run) {
  std::vector<double> walls;
  std::vector<double> cpus;
  for (int i = 0; i < repetitions + 1; ++i) {
    prepare();
    const double used = cpu();
    const double begun = now();
    run();
    const double took = now() - begun;
    if (i == 0) continue;  // memory, contexts and rings are made
    walls.push_back(took);
    cpus.push_back(cpu() - used);
  }
  std::ranges::sort(walls);
  std::ranges::sort(cpus);
  return {walls.front(), walls[walls.size() / 2], walls.back(), cpus[cpus.size() / 2]};
}

void nothing() {}

template <class T>
T need(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "headrace-bench-gpu: {}\n", result.error().message);
    std::exit(1);
  }
  return *std::move(result);
}

void need(const Transfer& transfer) { need(transfer.wait()); }

class Bench {
 public:
  explicit Bench(std::filesystem::path folder)
      : folder_(std::move(folder)),
        machine_(need(Machine::discover({.storage = {folder_}}))),
        backends_(need(Backends::open(machine_))),
        mover_(machine_, backends_) {
    const auto gpu = std::ranges::find(machine_.nodes, NodeKind::gpu, &Node::kind);
    if (gpu == machine_.nodes.end() || !gpu->gpu) {
      fmt::print(stderr, "headrace-bench-gpu: no GPU with a driver; see headrace doctor\n");
      std::exit(1);
    }
    gpu_ = gpu->id;
    emulated_ = gpu->gpu->emulated;
    fmt::print("{}{}\n", gpu->name, emulated_ ? ", emulated" : "");
    Placement pinned = Placement::on(NodeId{0});
    pinned.pin = true;
    device_ = need(allocate(machine_, size_, Placement::on(gpu_)));
    pinned_ = need(allocate(machine_, size_, pinned));
    plain_ = need(allocate(machine_, size_, Placement::on(NodeId{0})));
    std::fill_n(reinterpret_cast<char*>(plain_->memory()), size_.value, 'p');
    std::fill_n(reinterpret_cast<char*>(pinned_->memory()), size_.value, 'q');
  }

  void run(const std::string& only) {
    const auto wanted = [&](const char* part) { return only.empty() || only == part; };
    if (wanted("pinned")) big();
    if (wanted("small")) small();
    if (wanted("plain")) plain();
    if (wanted("fragments")) fragments();
    if (wanted("kv")) kv(false);
    if (only == "measure") measured();
    if (emulated_ || !wanted("disk")) return;  // its copies move no bytes
    file();
    kv(true);
  }

 private:
  const Bytes size_ = Bytes{std::uint64_t(number("HEADRACE_BENCH_MIB", 512)) << 20};

  void line(const std::string& what, Bytes bytes, const Times& times,
            const std::string& more = "") {
    const auto rate = [&](double seconds) {
      return static_cast<double>(bytes.value) / seconds / 1e9;
    };
    fmt::print("{:46} {:6.1f} GB/s ({:.1f}..{:.1f}), CPU {:.2f} ms{}\n", what, rate(times.median),
               rate(times.most), rate(times.least), times.cpu * 1e3, more);
    std::fflush(stdout);
  }

  // Copies with the driver alone: one call, then a wait that spins.
  double driver_alone(Bytes bytes, bool to_gpu, bool is_plain, int repetitions) {
    const cuda::Driver& driver = *need(cuda::driver());
    const auto context = need(cuda::Context::of(driver, 0));
    const cuda::CurrentContext current(*context);
    cuda::CUstream stream = nullptr;
    driver.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING);
    std::byte* const host = is_plain ? plain_->memory() : pinned_->memory();
    const Times times = time(repetitions, nothing, [&] {
      to_gpu ? driver.cuMemcpyHtoDAsync_v2(*device_->device_address(), host, bytes.value, stream)
             : driver.cuMemcpyDtoHAsync_v2(host, *device_->device_address(), bytes.value, stream);
      driver.cuStreamSynchronize(stream);
    });
    driver.cuStreamDestroy_v2(stream);
    return times.median;
  }

  Times copy(const Buffer& host, Bytes bytes, bool to_gpu, int repetitions) {
    const Extent here = whole(host).part(0, bytes);
    const Extent there = whole(*device_).part(0, bytes);
    return time(repetitions, nothing,
                [&] { need(to_gpu ? mover_.copy(there, here) : mover_.copy(here, there)); });
  }

  void pair(const char* kind, const Buffer& host, Bytes bytes) {
    for (const bool to_gpu : {true, false}) {
      const Times times = copy(host, bytes, to_gpu, kRepetitions);
      const double alone = driver_alone(bytes, to_gpu, &host == plain_.get(), kRepetitions);
      line(fmt::format("{} {}, {}", kind, to_string(bytes), to_gpu ? "to the GPU" : "from it"),
           bytes, times,
           fmt::format("; driver alone {:.1f}", static_cast<double>(bytes.value) / alone / 1e9));
    }
  }

  void big() {
    for (const Bytes bytes : {8_MiB, 64_MiB, size_}) {
      if (bytes <= size_) pair("pinned", *pinned_, bytes);
    }
  }
  void plain() { pair("plain", *plain_, size_); }

  void small() {
    for (const Bytes bytes : {4_KiB, 64_KiB, 1_MiB}) {
      const Times times = copy(*pinned_, bytes, true, 201);
      fmt::print("{:46} {:6.1f} us ({:.1f}..{:.1f}); driver alone {:.1f}\n",
                 fmt::format("pinned {} to the GPU, wait()", to_string(bytes)), times.median * 1e6,
                 times.least * 1e6, times.most * 1e6, driver_alone(bytes, true, false, 201) * 1e6);
    }
  }

  void fragments() {
    const Bytes fragment = 64_KiB;
    const std::uint64_t count = size_ / fragment;
    for (const std::uint64_t run : {1UL, 16UL}) {
      std::vector<std::uint64_t> places(count / run);
      std::iota(places.begin(), places.end(), 0);
      Random random(7);
      for (std::size_t i = places.size(); i > 1; --i)
        std::swap(places[i - 1], places[random() % i]);
      std::vector<MovePair> pairs;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t to = (places[i / run] * run + i % run) * fragment.value;
        pairs.push_back({.to = whole(*device_).part(to, fragment),
                         .from = whole(*pinned_).part(i * fragment.value, fragment)});
      }
      const Times times = time(kRepetitions, nothing, [&] { need(mover_.copy(pairs)); });
      line(fmt::format("fragments of 64 KiB in runs of {}", run), size_, times,
           fmt::format(", {:.2f} us a fragment", times.cpu * 1e6 / static_cast<double>(count)));
    }
  }

  // 512 blocks of an 8B model into a layer-first pool, in scattered places.
  void kv(bool from_folder) {
    const kvcache::Geometry geometry{.model = "8b", .layers = 32, .kv_heads = 8, .head_dim = 128};
    const std::size_t blocks = 512;
    const Bytes bytes = geometry.block() * blocks;
    const auto pool = need(allocate(machine_, bytes * 2, Placement::on(gpu_)));
    Placement pinned = Placement::on(NodeId{0});
    pinned.pin = true;
    const auto path = folder_ / "headrace-bench-gpu-kv";
    std::filesystem::remove_all(path);
    kvcache::StoreOptions options{.geometry = geometry, .in_flight = 4_GiB};
    options.tiers.push_back(
        {.budget = from_folder ? geometry.block() * 4 : bytes + 64_MiB, .memory = pinned});
    if (from_folder) options.tiers.push_back({.budget = bytes + 64_MiB, .folder = path});
    const auto store = need(kvcache::Store::open(mover_, options));
    std::vector<std::uint32_t> tokens(blocks * geometry.block_tokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto keys = kvcache::keys(geometry, tokens);
    kvcache::StoreRequest request{.layout = kvcache::Layout::layer_first};
    for (std::size_t i = 0; i < blocks; ++i) request.positions.push_back(i);
    double begun = now();
    double used = cpu();
    std::size_t stored = 0;
    for (std::size_t i = 0; i < blocks; i += from_folder ? 4 : blocks) {
      const std::size_t count = from_folder ? 4 : blocks;
      kvcache::StoreRequest part = request;
      part.positions.assign(request.positions.begin() + static_cast<std::ptrdiff_t>(i),
                            request.positions.begin() + static_cast<std::ptrdiff_t>(i + count));
      const auto counts =
          need(need(store->store(std::span(keys).subspan(i, count), whole(*pool), part)).wait());
      stored += counts.stored;
      if (from_folder) need_status(store->flush());
    }
    fmt::print("{:46} {:6.1f} GB/s, CPU {:.2f} ms, {} of {} blocks\n",
               from_folder ? "KV store to a folder" : "KV store to pinned DRAM",
               static_cast<double>(bytes.value) / (now() - begun) / 1e9, (cpu() - used) * 1e3,
               stored, blocks);
    kvcache::LoadOptions load{.layout = kvcache::Layout::layer_first, .promote = false};
    for (std::size_t i = 0; i < blocks; ++i) load.positions.push_back(blocks + i * 211 % blocks);
    std::vector<double> firsts;
    const double fragments = static_cast<double>(blocks * geometry.layers);
    const Times times = time(from_folder ? 3 : kRepetitions, nothing, [&] {
      const double start = now();
      const kvcache::Match match = store->match(keys);
      const kvcache::Load loading = need(store->load(match.keys(), whole(*pool), load));
      for (unsigned layer = 0; layer < loading.layers(); ++layer) {
        need_status(loading.wait_layer(layer));
        if (layer == 0) firsts.push_back(now() - start);
      }
    });
    std::ranges::sort(firsts);
    line(from_folder ? "KV load from a folder" : "KV load from pinned DRAM", bytes, times,
         fmt::format(", {:.2f} us a fragment, first layer {:.2f} ms", times.cpu * 1e6 / fragments,
                     firsts[firsts.size() / 2] * 1e3));
    need_status(store->close());
    std::filesystem::remove_all(path);
  }

  static void need_status(const Status& status) {
    if (status) return;
    fmt::print(stderr, "headrace-bench-gpu: {}\n", status.error().message);
    std::exit(1);
  }

  void file() {
    const auto path = folder_ / "headrace-bench-gpu-file";
    const Bytes bytes = 2_GiB;
    {
      const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
      for (std::uint64_t at = 0; at < bytes.value; at += size_.value) {
        if (write(fd, plain_->memory(), size_.value) < 0) std::exit(1);
      }
      fsync(fd);
      close(fd);
    }
    const auto file = need(File::open(machine_, path));
    const auto to = need(allocate(machine_, bytes, Placement::on(gpu_)));
    const auto cold = [&] { need_status(file->drop_page_cache()); };
    line("file of 2 GiB to the GPU, cold", bytes,
         time(3, cold, [&] { need(mover_.copy(whole(*to), whole(*file))); }));
    line("the same into pinned memory (512 MiB)", size_,
         time(3, cold, [&] { need(mover_.copy(whole(*pinned_), whole(*file).part(0, size_))); }));
    line("O_DIRECT by 16 threads of 1 MiB, no GPU", bytes,
         time(3, cold, [&] { read_alone(*file); }));
    const auto warm = [&] {
      std::vector<char> some(1 << 20);
      for (std::uint64_t at = 0; at < bytes.value; at += some.size()) {
        if (pread(file->buffered_fd(), some.data(), some.size(), static_cast<off_t>(at)) < 0) {
          std::exit(1);
        }
      }
    };
    line("file of 2 GiB to the GPU, warm", bytes,
         time(3, warm, [&] { need(mover_.copy(whole(*to), whole(*file))); }));
    std::filesystem::remove(path);
  }

  // As `headrace measure gpu --budget 60s`.
  void measured() {
    const double begun = now();
    const Profile profile =
        need(measure(machine_, {.experiments = {"gpu"}, .noise_checks = false}));
    std::size_t with_value = 0;
    for (const Row& row : profile.rows) {
      with_value += row.value.has_value();
      if (!row.value) continue;
      fmt::print("{} {:.6g} {}\n", row.key(), row.value->median, row.unit);
    }
    fmt::print("{} of {} points in {:.1f} s\n", with_value, profile.rows.size(), now() - begun);
  }

  void read_alone(const File& file) {
    std::atomic<std::uint64_t> next{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 16; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t at; (at = next.fetch_add(1 << 20)) < file.size().value;) {
          void* const to = pinned_->memory() + (std::uint64_t{t} << 20);
          if (pread(file.direct_fd(), to, 1 << 20, static_cast<off_t>(at)) < 0) std::exit(1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const std::filesystem::path folder_;
  const Machine machine_;
  const Backends backends_;
  Mover mover_;
  NodeId gpu_{};
  bool emulated_ = false;
  std::unique_ptr<Buffer> device_;
  std::unique_ptr<Buffer> pinned_;
  std::unique_ptr<Buffer> plain_;
};

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Bench(argc > 1 ? argv[1] : std::filesystem::temp_directory_path())
      .run(argc > 2 ? argv[2] : "");
  return 0;
}
