// SPDX-License-Identifier: Apache-2.0
// How Headrace's quantities, ids and words look in Python: byte counts and ids are ints, times are
// seconds as floats, rates are bytes per second as floats, and enums are the words of the JSON.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>

#include <cmath>
#include <string>
#include <string_view>

#include "casters.h"
#include "errors.h"
#include "headrace/headrace.h"

namespace headrace::python {

// The words of an enum, for parsing and for the types in the stub: `what` it is, `name`, its type
// in the stub, and `last`, its last value; the first is 0.
template <class Enum>
struct Words;

// A word given by the user, looked up by get(): a wrong one raises InvalidError with the right
// ones.
template <class Enum>
struct Word {
  std::string text;

  Enum get() const {
    std::string known;
    for (int i = 0; i <= static_cast<int>(Words<Enum>::last); ++i) {
      const auto value = static_cast<Enum>(i);
      if (to_string(value) == text) return value;
      known += (known.empty() ? "" : ", ") + std::string(to_string(value));
    }
    raise(ErrorCode::invalid,
          "no " + std::string(Words<Enum>::what) + " '" + text + "'; there are " + known);
  }
};

}  // namespace headrace::python

namespace nanobind::detail {

// A quantity that is one number in Python: Bytes, ids, rates, times.
template <class T, class Number, class Conversion>
struct number_caster {
  using Inner = make_caster<Number>;
  NB_TYPE_CASTER(T, Inner::Name)

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    Inner inner;
    if (!inner.from_python(source, flags, cleanup)) return false;
    if constexpr (std::is_same_v<T, headrace::Nanoseconds>) {
      if (!(inner.value >= 0)) return false;  // also NaN
    }
    value = Conversion::in(inner.value);
    return true;
  }
  static handle from_cpp(const T& source, rv_policy policy, cleanup_list* cleanup) noexcept {
    return Inner::from_cpp(Conversion::out(source), policy, cleanup);
  }
};

struct bytes_conversion {
  static headrace::Bytes in(std::uint64_t n) { return {n}; }
  static std::uint64_t out(headrace::Bytes n) { return n.value; }
};
struct rate_conversion {
  static headrace::BytesPerSecond in(double rate) { return {rate}; }
  static double out(headrace::BytesPerSecond rate) { return rate.value; }
};
struct time_conversion {
  // Seconds; what does not fit (infinity, centuries) becomes a year, more than any bound needs.
  static headrace::Nanoseconds in(double seconds) {
    constexpr double kYear = 365.0 * 86400;
    return headrace::Nanoseconds{
        static_cast<std::int64_t>((seconds < kYear ? seconds : kYear) * 1e9)};
  }
  static double out(headrace::Nanoseconds time) { return headrace::seconds(time); }
};
template <class Id>
struct id_conversion {
  static Id in(std::underlying_type_t<Id> n) { return Id{n}; }
  static std::underlying_type_t<Id> out(Id id) { return headrace::raw(id); }
};

template <>
struct type_caster<headrace::Bytes>
    : number_caster<headrace::Bytes, std::uint64_t, bytes_conversion> {};
template <>
struct type_caster<headrace::BytesPerSecond>
    : number_caster<headrace::BytesPerSecond, double, rate_conversion> {};
template <>
struct type_caster<headrace::Nanoseconds>
    : number_caster<headrace::Nanoseconds, double, time_conversion> {};
template <>
struct type_caster<headrace::NodeId>
    : number_caster<headrace::NodeId, std::uint32_t, id_conversion<headrace::NodeId>> {};
template <>
struct type_caster<headrace::EngineId>
    : number_caster<headrace::EngineId, std::uint32_t, id_conversion<headrace::EngineId>> {};
template <>
struct type_caster<headrace::ObjectId>
    : number_caster<headrace::ObjectId, std::uint64_t, id_conversion<headrace::ObjectId>> {};

// Enums go out as their words.
template <class Enum>
struct word_caster {
  NB_TYPE_CASTER(Enum, headrace::python::Words<Enum>::name)

  bool from_python(handle, uint32_t, cleanup_list*) noexcept { return false; }
  static handle from_cpp(const Enum& source, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<std::string_view>::from_cpp(to_string(source), policy, cleanup);
  }
};
// And come in as Word.
template <class Enum>
struct type_caster<headrace::python::Word<Enum>> {
  NB_TYPE_CASTER(headrace::python::Word<Enum>, headrace::python::Words<Enum>::name)

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::string> inner;
    if (!inner.from_python(source, flags, cleanup)) return false;
    value.text = std::move(inner.value);
    return true;
  }
};

}  // namespace nanobind::detail

#define HEADRACE_WORDS(Enum, what_, literal, last_)                     \
  template <>                                                           \
  struct headrace::python::Words<headrace::Enum> {                      \
    static constexpr const char* what = what_;                          \
    static constexpr auto name = nanobind::detail::const_name(literal); \
    static constexpr headrace::Enum last = headrace::Enum::last_;       \
  };                                                                    \
  template <>                                                           \
  struct nanobind::detail::type_caster<headrace::Enum> : word_caster<headrace::Enum> {};

HEADRACE_WORDS(NodeKind, "node kind", "typing.Literal['dram', 'hbm', 'cxl', 'gpu', 'storage']",
               storage)
HEADRACE_WORDS(GpuParadigm, "paradigm", "typing.Literal['ats', 'hmm', 'managed', 'limited']",
               limited)
HEADRACE_WORDS(EngineKind, "engine kind", "typing.Literal['cpu', 'ssd', 'dsa', 'gpu', 'migrate']",
               migrate)
HEADRACE_WORDS(LinkKind, "link kind",
               "typing.Literal['upi', 'xgmi', 'socket', 'mesh', 'pcie', 'cxl', 'nvlink', 'c2c']",
               c2c)
HEADRACE_WORDS(PageSize, "page size", "typing.Literal['base', 'transparent', 'huge_2m', 'huge_1g']",
               huge_1g)
HEADRACE_WORDS(Distribution, "distribution",
               "typing.Literal['nearest', 'first_touch', 'interleave']", interleave)
HEADRACE_WORDS(MemoryPolicy, "policy",
               "typing.Literal['none', 'bind', 'preferred', 'preferred_many', 'interleave', "
               "'weighted_interleave']",
               weighted_interleave)
HEADRACE_WORDS(Priority, "priority", "typing.Literal['demand', 'prefetch', 'migration']", migration)
HEADRACE_WORDS(CopyHint, "copy hint", "typing.Literal['automatic', 'keep', 'stream']", stream)
HEADRACE_WORDS(Keep, "keep", "typing.Literal['normal', 'longer', 'shorter']", shorter)
HEADRACE_WORDS(BlockState, "block state",
               "typing.Literal['absent', 'filling', 'ready', 'failed', 'evicting']", evicting)
HEADRACE_WORDS(Difference::Outcome, "outcome",
               "typing.Literal['same', 'changed', 'inconclusive', 'noisy', 'too_few', "
               "'other_pages', 'only_old', 'only_new', 'unmeasured']",
               unmeasured)
HEADRACE_WORDS(Basis, "basis", "typing.Literal['measured', 'modelled', 'published', 'emulated']",
               emulated)
HEADRACE_WORDS(ParameterKind, "parameter kind",
               "typing.Literal['node', 'count', 'count_or_all', 'word', 'operation', 'mix', 'any']",
               any)
HEADRACE_WORDS(HotnessKind, "source of hotness", "typing.Literal['referenced', 'memfd', 'written']",
               written)
HEADRACE_WORDS(ProcessHotness, "source of hotness",
               "typing.Literal['hint-faults', 'refaults', 'referenced', 'damon']", damon)
#undef HEADRACE_WORDS
