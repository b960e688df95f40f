// SPDX-License-Identifier: Apache-2.0
// Mover and Transfer.
#include "core/waiting/duration.h"
#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

MoverRef make_mover(const Machine& machine, const std::string& route, std::optional<Bytes> piece,
                    std::optional<Bytes> in_flight_per_link) {
  MoverOptions options{.route = unwrap(place::route_policy(route)),
                       .piece = piece,
                       .in_flight_per_link = in_flight_per_link};
  if (piece && *piece == 0_B)
    raise(ErrorCode::invalid, "a piece of 0 bytes moves nothing; give more");
  return {std::shared_ptr<MoverOwner>(
      new MoverOwner(machine, unwrap(without_gil([&] { return Backends::open(machine); })),
                     std::move(options)),
      EndOwner())};
}

void check_pair(const ExtentLike& to, const ExtentLike& source) {
  if (!to.writable) {
    raise(ErrorCode::denied, "the destination is read-only; open or make it writable");
  }
  if (to.length != source.length) {
    raise(ErrorCode::invalid, "the two sides differ in length: " + std::to_string(to.length.value) +
                                  " and " + std::to_string(source.length.value) + " bytes");
  }
  if (overlap(to.get(), source.get())) {  // which would end the program
    raise(ErrorCode::invalid, "the two sides overlap; copy through a third buffer");
  }
}

TransferRef copy_all(const MoverRef& self,
                     const std::vector<std::pair<ExtentLike, ExtentLike>>& pairs,
                     const Word<Priority>& priority) {
  std::vector<MovePair> plain;
  plain.reserve(pairs.size());
  std::vector<ObjectPointer> objects;
  const auto keep = [&](const ObjectPointer& object) {
    if (objects.size() < 2 || (object != objects.back() && object != objects.end()[-2])) {
      objects.push_back(object);
    }
  };
  for (const auto& [to, source] : pairs) {
    check_pair(to, source);
    plain.push_back({.to = to.get(), .from = source.get()});
    keep(to.object);
    keep(source.object);
  }
  const std::shared_ptr<MoverOwner> owner = self.owner;
  const MoveOptions options{.priority = priority.get()};
  release_borrowed();
  const GilRelease release;
  Transfer transfer = owner->mover.copy(plain, options);
  transfer.on_done([kept = std::move(objects)](const Result<MoveStats>&) mutable {
    const NoPython scope;
    kept.clear();
  });
  return {owner, std::move(transfer)};
}

TransferRef copy(const MoverRef& self, const ExtentLike& to, const ExtentLike& source,
                 const Word<Priority>& priority, const Word<CopyHint>& hint,
                 const std::optional<std::string>& route) {
  MoveOptions options{.priority = priority.get(), .hint = hint.get()};
  if (route) options.route = unwrap(place::route_policy(*route));
  check_pair(to, source);
  const std::shared_ptr<MoverOwner> owner = self.owner;
  release_borrowed();
  const GilRelease release;
  Transfer transfer = owner->mover.copy(to.get(), source.get(), options);
  // Both objects live until the engines are done with them, whatever Python drops meanwhile.
  transfer.on_done([a = to.object, b = source.object](const Result<MoveStats>&) mutable {
    const NoPython scope;
    a.reset();
    b.reset();
  });
  return {owner, std::move(transfer)};
}

MoveStats wait(const TransferRef& self, Nanoseconds timeout) {
  const Transfer transfer = self.transfer;
  Result<MoveStats> outcome;
  const bool over = wait_with_signals(timeout, [&](Nanoseconds slice) {
    outcome = transfer.wait(slice);
    return transfer.done() || (!outcome && outcome.error().code != ErrorCode::timed_out);
  });
  // It may have ended between the last look and done().
  if (auto last = transfer.poll()) {
    outcome = *std::move(last);
  } else if (!over) {
    // Not what a slice of the wait says of itself.
    raise(ErrorCode::timed_out,
          "not done after " + to_string(timeout) + "; it goes on, so wait again or cancel it");
  }
  return unwrap(std::move(outcome));
}

std::optional<MoveStats> poll(const TransferRef& self) {
  auto outcome = self.transfer.poll();
  if (!outcome) return std::nullopt;
  return unwrap(*std::move(outcome));
}

void bind_transfer(nb::module_& m) {
  Record<MoveStats>(m, "MoveStats", "The outcome of a move.")
      .field("bytes", &MoveStats::bytes, "Bytes moved.")
      .field("pieces", &MoveStats::pieces, "Number of pieces.")
      .field("retries", &MoveStats::retries, "Pieces given to another engine after a failure.")
      .field("queued", &MoveStats::queued, "Seconds until the first piece was accepted.")
      .field("total", &MoveStats::total, "Seconds until the last piece was done.")
      .field("engines", &MoveStats::engines, "Engines that carried a piece.");
  nb::class_<TransferRef>(m, "Transfer",
                          "One asynchronous move: wait for it, poll it, await it (asyncio), select "
                          "on fileno(), or cancel it. Dropping it neither cancels nor waits; both "
                          "objects stay alive until the move is done.",
                          nb::is_weak_referenceable())
      .def(
          "done", [](const TransferRef& self) { return self.transfer.done(); },
          "True once nothing more will be written.")
      .def("wait", &wait, "timeout"_a = 60.0,
           "Waits at most `timeout` seconds. TimedOutError: it goes on, wait again.")
      .def("poll", &poll, "The outcome if done, else None; raises what wait() would.")
      .def(
          "cancel",
          [](const TransferRef& self) {
            const GilRelease release;
            self.transfer.cancel();
          },
          "Requests a stop: queued pieces are dropped, and engines are asked to end pieces in "
          "flight.")
      .def(
          "fileno", [](const TransferRef& self) { return unwrap(self.transfer.event_fd()); },
          "A descriptor that becomes readable when the move is done; valid while this object "
          "lives, not to be read or closed.")
      .def("__await__", await_by("finished"),
           nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, MoveStats]"),
           "Under asyncio: the outcome, without blocking the loop. Cancelling the awaiting task "
           "does not cancel the move.")
      .def("__repr__", [](const TransferRef& self) {
        return std::string(self.transfer.done() ? "Transfer(done)" : "Transfer(in flight)");
      });
}

}  // namespace

void bind_mover(nb::module_& m) {
  bind_transfer(m);
  Record<MoverStats>(m, "MoverStats", "Totals since the Mover was made.")
      .field("transfers", &MoverStats::transfers, "Transfers started.")
      .field("failed", &MoverStats::failed, "Transfers that ended with an error.")
      .field("cancelled", &MoverStats::cancelled, "Transfers ended by cancel().")
      .field("pieces", &MoverStats::pieces, "Done.")
      .field("retries", &MoverStats::retries, "Pieces given to another engine after a failure.")
      .field("bytes", &MoverStats::bytes, "Moved.")
      .field("in_flight_pieces", &MoverStats::in_flight_pieces, "Pieces submitted to engines now.")
      .field("queued_pieces", &MoverStats::queued_pieces, "Pieces in the Mover's queue now.")
      .field("degraded", &MoverStats::degraded,
             "Features that engines lack, and why, one line each. Example: a GPU's driver did not "
             "load the kernel that gathers small copies.");
  nb::class_<MoverRef>(m, "Mover",
                       "Moves extents with the engines of a machine, as the machine was when the "
                       "Mover was made. When the Mover, its last transfer and its last cache are "
                       "dropped, queued pieces are cancelled and pieces in flight are waited for.")
      .def(
          "__init__",
          [](MoverRef* self, const Machine& machine, const std::string& route,
             std::optional<Bytes> piece, std::optional<Bytes> in_flight_per_link) {
            new (self) MoverRef(make_mover(machine, route, piece, in_flight_per_link));
          },
          "machine"_a, nb::kw_only(), "route"_a = "measured", "piece"_a = nb::none(),
          "in_flight_per_link"_a = nb::none(),
          "`route`: one, brute_force, smart or measured. `piece`: bytes of a piece, at most. "
          "`in_flight_per_link`: bytes in flight between two nodes, at most. Defaults: the "
          "engine's preference between memories (a GPU: 16 and 32 MiB), else 1 and 16 MiB.")
      .def("copy", &copy, "to"_a, "source"_a, nb::kw_only(), "priority"_a = "demand",
           "hint"_a = "automatic", "route"_a = nb::none(),
           "Starts copying `source` to `to` (extents or whole objects of the same length).")
      .def("copy_all", &copy_all, "pairs"_a, nb::kw_only(), "priority"_a = "demand",
           "Starts copying many pairs (to, source) as one move, in this order. Cheaper than a call "
           "of copy() for each; neighbours are read together. Destinations must not overlap.")
      .def(
          "stats", [](const MoverRef& self) { return self.owner->mover.stats(); }, "Totals.")
      .def_prop_ro(
          "machine", [](const MoverRef& self) { return self.owner->machine; },
          "The machine it works on.")
      .def_prop_ro(
          "skipped", [](const MoverRef& self) { return self.owner->backends.skipped(); },
          "Engines that no backend drives here, each with the reason.");
}

}  // namespace headrace::python
