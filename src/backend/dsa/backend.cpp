// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <utility>

#include "backend/dsa/dsa.h"
#include "backend/dsa/queue/character_device.h"
#include "backend/dsa/queue/open_device.h"
#include "core/fail.h"
#include "core/fork.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"

namespace headrace {
namespace {

using dsa::Ended;
using dsa::OpenDevice;
using dsa::Submission;

// Descriptors of a submit() that are built together before they are submitted.
constexpr std::size_t kAtOnce = 32;
// Below this size a core is faster than waiting for a device: 4 KiB (Kuper et al., ASPLOS'24). A
// measured profile is more exact.
constexpr Bytes kMinEfficient = 4_KiB;
// The pauses between checks of the records when a backend ends; a large copy takes a millisecond.
constexpr Nanoseconds kFirstNap = std::chrono::microseconds{10};
constexpr Nanoseconds kLongestNap = std::chrono::milliseconds{1};

struct Driven {
  EngineId engine;
  bool cache_control = false;
  OpenDevice opened;
};

class DsaBackend final : public Backend {
 public:
  DsaBackend(std::vector<Driven> driven, const DsaOptions& options, std::string note)
      : driven_(std::move(driven)), options_(options) {
    facts_.name = "dsa";
    facts_.max_piece = Bytes{std::numeric_limits<std::uint64_t>::max()};
    facts_.max_in_flight = std::numeric_limits<std::size_t>::max();
    for (const Driven& each : driven_) {
      facts_.engines.push_back(each.engine);
      facts_.max_piece = std::min(facts_.max_piece, Bytes{each.opened.max_transfer()});
      facts_.max_in_flight = std::min(facts_.max_in_flight, each.opened.room());
    }
    facts_.min_efficient = kMinEfficient;
    facts_.completes_itself = false;
    facts_.note = std::move(note);
  }

  ~DsaBackend() override {
    if (!origin_.here()) {
      abandon(std::move(driven_));
      return;
    }
    std::vector<Ended> ended;  // not poll()'s vector, which may be destroyed at the program's end
    finish(ended);
    for (Driven& each : driven_) each.opened.give_up(ended);
    report(ended);
  }

  const Capabilities& capabilities() const override { return facts_; }

  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    HEADRACE_TRY_STATUS(origin_.check("the dsa backend"));
    for (const Piece& piece : pieces) HEADRACE_TRY_STATUS(check(piece));
    std::size_t accepted = 0;
    while (accepted < pieces.size()) {
      const std::size_t offered = run_of_one_engine(pieces.subspan(accepted));
      auto taken = submit_slots(pieces.subspan(accepted, offered), completion);
      if (!taken && accepted == 0) return taken;
      const std::size_t count = taken.value_or(0);
      accepted += count;
      if (count < offered) break;
    }
    return accepted;
  }

  std::size_t poll() override {
    if (!origin_.here()) return 0;
    // The memory is reused by this thread's next poll. It is moved out, since a completion may poll
    // too.
    static thread_local std::vector<Ended> spare;
    std::vector<Ended> ended;
    ended.swap(spare);
    const std::size_t count = poll_into(ended);
    ended.swap(spare);
    return count;
  }

 private:
  // Waits until nothing is in flight, or the device has had enough time.
  void finish(std::vector<Ended>& ended) {
    // Queues give up after the limit; a second queue may try again, for the limit once more.
    Patience patience(*options_.clock, *options_.waiting, 3 * options_.limit);
    Backoff naps(kFirstNap, kLongestNap);
    const std::atomic<std::uint32_t> asleep{0};  // no thread wakes it
    while (busy() && !patience.over()) {
      if (poll_into(ended) > 0) {
        naps.reset();
      } else {
        patience.sleep(asleep, 0, naps.next());
      }
    }
  }

  // Reports all ended copies; leaves `ended` empty.
  std::size_t poll_into(std::vector<Ended>& ended) {
    for (Driven& each : driven_) {
      if (each.opened.in_flight() > 0) each.opened.poll(ended);
    }
    report(ended);
    const std::size_t count = ended.size();
    ended.clear();
    return count;
  }

  static Status outcome_of(Ended& ended) {
    if (ended.failure == nullptr) return {};
    return Unexpected(std::move(ended.failure->why));
  }

  static void report(std::vector<Ended>& ended) {
    for (Ended& each : ended) {
      static_cast<Completion*>(each.owner)->complete(each.tag, outcome_of(each));
    }
  }

  Driven& driven_by(EngineId engine) {
    return *std::ranges::find(driven_, engine, &Driven::engine);
  }

  Status check(const Piece& piece) const {
    HEADRACE_TRY_STATUS(check_piece(facts_, piece));
    if (piece.from.memory() != nullptr && piece.to.memory() != nullptr) return {};
    return fail(ErrorCode::unsupported, "a DSA device copies between memories only; not files");
  }

  // Returns the number of leading pieces for the same engine.
  static std::size_t run_of_one_engine(std::span<const Piece> pieces) {
    std::size_t count = 1;
    while (count < std::min(pieces.size(), kAtOnce) &&
           pieces[count].engine == pieces.front().engine) {
      ++count;
    }
    return count;
  }

  Result<std::size_t> submit_slots(std::span<const Piece> pieces, Completion& completion) {
    Driven& driven = driven_by(pieces.front().engine);
    // A piece without bytes ends here, since a device refuses it. Its completion may submit again,
    // so the submissions are made afterwards.
    std::size_t begin = 0;
    while (begin < pieces.size() && pieces[begin].from.length == 0_B) {
      completion.complete(pieces[begin++].tag, {});
    }
    // Static, since building it in each call would take longer than submitting one.
    static thread_local constinit std::array<Submission, kAtOnce> submissions{};
    std::size_t count = 0;
    for (const Piece& piece : pieces.subspan(begin)) {
      if (piece.from.length == 0_B) break;
      submissions[count++] = submission_of(piece, driven, completion);
    }
    if (count == 0) return begin;
    auto taken = driven.opened.submit(std::span<const Submission>(submissions).first(count));
    if (!taken) return begin > 0 ? Result<std::size_t>(begin) : taken;
    return begin + *taken;
  }

  static Submission submission_of(const Piece& piece, const Driven& driven,
                                  Completion& completion) {
    return {.copy = {.source = reinterpret_cast<std::uintptr_t>(piece.from.memory()),
                     .destination = reinterpret_cast<std::uintptr_t>(piece.to.memory()),
                     .bytes = piece.from.length.value,
                     .to_cache = piece.hint == CopyHint::keep && driven.cache_control},
            .tag = piece.tag,
            .owner = &completion};
  }

  bool busy() const {
    return std::ranges::any_of(driven_,
                               [](const Driven& each) { return each.opened.in_flight() > 0; });
  }

  const Origin origin_;
  Capabilities facts_;
  std::vector<Driven> driven_;
  const DsaOptions options_;
};

std::string describe(const dsa::Device& device, const OpenDevice& opened) {
  std::string text = device.name + ":";
  for (const auto& queue : opened.all()) {
    text += fmt::format(" {} {} by {}", queue->queue().shared ? "shared" : "dedicated",
                        queue->queue().name, queue->portal_name());
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<Backend>> open_dsa(const Machine& machine, std::vector<EngineId> engines) {
  return open_dsa(machine, std::move(engines), {});
}

Result<std::unique_ptr<Backend>> open_dsa(const Machine& machine, std::vector<EngineId> engines,
                                          const DsaOptions& options) {
  if (engines.empty()) return fail(ErrorCode::invalid, "no engine was named; name a dsa engine");
  const std::vector<dsa::Device> devices =
      options.devices ? *options.devices : dsa::find_devices(dsa::Roots::from_environment());
  dsa::QueueOptions of_queues{.open = options.open, .limit = options.limit, .clock = options.clock};
  if (!of_queues.open) {
    of_queues.open = [](const dsa::WorkQueue& queue) { return dsa::open_character_device(queue); };
  }
  std::vector<Driven> driven;
  std::optional<Error> first;
  std::string note;
  for (const EngineId id : engines) {
    const Engine* engine = machine.find(id);
    if (engine == nullptr || engine->kind != EngineKind::dsa) {
      return fail(ErrorCode::unsupported, "engine {} is not a dsa engine of this machine; see {}",
                  raw(id), "headrace topo");
    }
    const auto device = std::ranges::find(devices, engine->name, &dsa::Device::name);
    Result<OpenDevice> opened =
        device == devices.end()
            ? Result<OpenDevice>(
                  fail(ErrorCode::absent, "no device {} here; see headrace doctor", engine->name))
            : OpenDevice::open(*device, of_queues);
    note += note.empty() ? "" : "; ";
    if (opened) {
      note += describe(*device, *opened);
      driven.push_back({id, device->cache_control, *std::move(opened)});
    } else {
      note += fmt::format("{}: {}", engine->name, opened.error().message);
      if (!first) first = std::move(opened).error();
    }
  }
  if (driven.empty()) return Unexpected(*std::move(first));
  return std::make_unique<DsaBackend>(std::move(driven), options, std::move(note));
}

}  // namespace headrace
