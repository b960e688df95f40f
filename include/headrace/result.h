// SPDX-License-Identifier: Apache-2.0
// A value, or the Error that explains its absence: how functions report expected failures.
//
//     headrace::Result<headrace::Bytes> size = file->update_size();
//     if (!size) return headrace::Unexpected(size.error());
//     const headrace::Bytes bytes = *size;
//
// Missing hardware, bad input and a full disk are expected failures. The library throws nothing of
// its own. Programmer errors are not Results: they end the program through CHECK.
//
// Result is used like std::expected<T, Error> of C++23, except that value() of an error ends the
// program. It is a class of its own, the same in C++20 and C++23, so a program of one standard can
// link a library of the other.
//
// Thread-compatible.
#pragma once

#include <cassert>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// All reasons of failure. python/src/shared/errors.cpp maps them to Python exceptions.
enum class ErrorCode : std::uint8_t {
  absent,       // it does not exist: a node, an engine, a file, a column
  unsupported,  // it exists and cannot do this
  denied,       // the system refuses permission
  exhausted,    // no space: memory, budget, queue, disk
  io,           // a device or file failed or ended early
  invalid,      // the request makes no sense
  cancelled,    // stopped on request
  timed_out,    // not finished within its time bound
};

// "absent", "io", ...: as in JSON.
std::string_view to_string(ErrorCode code);

// The exit code of a program that ends for this reason; 70 (EX_SOFTWARE): none of these reasons.
// Shells and argument parsers use 2 for a request that makes no sense; 130 is 128 + SIGINT.
constexpr int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid: return 2;
    case ErrorCode::absent: return 3;
    case ErrorCode::unsupported: return 4;
    case ErrorCode::denied: return 5;
    case ErrorCode::exhausted: return 6;
    case ErrorCode::io: return 7;
    case ErrorCode::timed_out: return 8;
    case ErrorCode::cancelled: return 130;
  }
  return 70;
}

// The failure and its remedy, in one line without a final full stop.
struct Error {
  ErrorCode code;
  std::string message;

  friend bool operator==(const Error&, const Error&) = default;
};

// Converts to a Result of any type that holds this Error.
class Unexpected {
 public:
  constexpr explicit Unexpected(Error error) noexcept : error_(std::move(error)) {}

  constexpr const Error& error() const& noexcept { return error_; }
  constexpr Error& error() & noexcept { return error_; }
  constexpr Error&& error() && noexcept { return std::move(error_); }

  friend bool operator==(const Unexpected&, const Unexpected&) = default;

 private:
  Error error_;
};

// Prints the error to stderr and aborts. Called by value() of a Result that holds this error.
[[noreturn]] void no_value(const Error& error);

template <class T>
class Result;

// Success, or the Error that explains the failure.
using Status = Result<void>;

template <class R>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<Result<T>> = true;

// Makes a Result<T> that holds a value.
template <class U, class T>
concept MakesValue =
    (!std::is_void_v<T>) && (!std::is_same_v<std::remove_cvref_t<U>, Result<T>>) &&
    (!(std::is_same_v<T, bool> && is_result<std::remove_cvref_t<U>>)) &&
    (!std::is_same_v<std::remove_cvref_t<U>, Unexpected>) && std::is_constructible_v<T, U>;

// Result<U> converts to Result<T>, except where a T itself is constructible from a Result<U>.
template <class From, class U, class T>
concept Converts =
    (!std::is_same_v<U, T>) && (!std::is_same_v<T, bool>) && (!std::is_void_v<T>) &&
    std::is_constructible_v<T, From> && (!std::is_constructible_v<T, Result<U>&>) &&
    (!std::is_constructible_v<T, const Result<U>&>) && (!std::is_constructible_v<T, Result<U>>);

// A T, or the Error that explains its absence. T is an object type or void.
template <class T>
class [[nodiscard]] Result {
  static constexpr bool kVoid = std::is_void_v<T>;
  struct Nothing {
    friend bool operator==(const Nothing&, const Nothing&) = default;
  };
  using Value = std::conditional_t<kVoid, Nothing, T>;
  using Reference = std::add_lvalue_reference_t<T>;
  using ConstReference = std::add_lvalue_reference_t<std::add_const_t<T>>;
  using Moved = std::add_rvalue_reference_t<T>;

 public:
  constexpr Result() noexcept(std::is_nothrow_default_constructible_v<Value>)
    requires std::is_default_constructible_v<Value>
      : value_(), has_(true) {}
  template <class U = T>
    requires MakesValue<U, T>
  constexpr explicit(!std::is_convertible_v<U, T>)
      Result(U&& value) noexcept(std::is_nothrow_constructible_v<T, U>)
      : value_(static_cast<T>(std::forward<U>(value))), has_(true) {}
  constexpr Result(Unexpected failure) noexcept : error_(std::move(failure).error()), has_(false) {}
  template <class U>
    requires Converts<const U&, U, T>
  constexpr explicit(!std::is_convertible_v<const U&, T>) Result(const Result<U>& other)
      : has_(other.has_value()) {
    has_ ? make(value_, *other) : make(error_, other.error());
  }
  template <class U>
    requires Converts<U, U, T>
  constexpr explicit(!std::is_convertible_v<U, T>) Result(Result<U>&& other)
      : has_(other.has_value()) {
    has_ ? make(value_, *std::move(other)) : make(error_, std::move(other).error());
  }

  constexpr Result(const Result& other)
    requires std::is_copy_constructible_v<Value>
      : has_(other.has_) {
    has_ ? make(value_, other.value_) : make(error_, other.error_);
  }
  constexpr Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<Value>)
    requires std::is_move_constructible_v<Value>
      : has_(other.has_) {
    has_ ? make(value_, std::move(other.value_)) : make(error_, std::move(other.error_));
  }
  constexpr Result& operator=(const Result& other)
    requires(std::is_copy_constructible_v<Value> && std::is_copy_assignable_v<Value>)
  {
    return assign(other);
  }
  constexpr Result& operator=(Result&& other) noexcept(
      std::is_nothrow_move_constructible_v<Value> && std::is_nothrow_move_assignable_v<Value>)
    requires(std::is_move_constructible_v<Value> && std::is_move_assignable_v<Value>)
  {
    return assign(std::move(other));
  }
  constexpr ~Result() {
    has_ ? std::destroy_at(std::addressof(value_)) : std::destroy_at(std::addressof(error_));
  }

  constexpr bool has_value() const noexcept { return has_; }
  constexpr explicit operator bool() const noexcept { return has_; }

  // Requires: has_value().
  constexpr Reference operator*() & noexcept { return get(*this); }
  constexpr ConstReference operator*() const& noexcept { return get(*this); }
  constexpr Moved operator*() && noexcept { return get(std::move(*this)); }
  constexpr Value* operator->() noexcept
    requires(!kVoid)
  {
    return std::addressof(get(*this));
  }
  constexpr const Value* operator->() const noexcept
    requires(!kVoid)
  {
    return std::addressof(get(*this));
  }

  // The value. Without a value, prints the error to stderr and ends the program.
  constexpr Reference value() & { return checked(*this); }
  constexpr ConstReference value() const& { return checked(*this); }
  constexpr Moved value() && { return checked(std::move(*this)); }

  // Requires: !has_value().
  constexpr Error& error() & noexcept { return assert(!has_), error_; }
  constexpr const Error& error() const& noexcept { return assert(!has_), error_; }
  constexpr Error&& error() && noexcept { return assert(!has_), std::move(error_); }

  template <class U = T>
    requires(!kVoid)
  constexpr T value_or(U&& other) const& {
    return has_ ? value_ : static_cast<T>(std::forward<U>(other));
  }
  template <class U = T>
    requires(!kVoid)
  constexpr T value_or(U&& other) && {
    return has_ ? std::move(value_) : static_cast<T>(std::forward<U>(other));
  }

  // Templates, so that only Results are compared, not types that convert to one.
  template <std::same_as<Result> Same>
    requires std::equality_comparable<Value>
  friend constexpr bool operator==(const Same& a, const Same& b) {
    if (a.has_ != b.has_) return false;
    return a.has_ ? a.value_ == b.value_ : a.error_ == b.error_;
  }
  template <std::same_as<Result> Same, class U>
    requires(!kVoid && !is_result<U> && !std::same_as<U, Unexpected>)
  friend constexpr bool operator==(const Same& a, const U& value) {
    return a.has_ && a.value_ == value;
  }
  template <std::same_as<Result> Same>
  friend constexpr bool operator==(const Same& a, const Unexpected& failure) {
    return !a.has_ && a.error_ == failure.error();
  }

 private:
  template <class Self>
  static constexpr decltype(auto) get(Self&& self) noexcept {
    assert(self.has_);
    if constexpr (!kVoid) return (std::forward<Self>(self).value_);
  }
  template <class Self>
  static constexpr decltype(auto) checked(Self&& self) {
    if (!self.has_) no_value(self.error_);
    return get(std::forward<Self>(self));
  }
  template <class Member, class... Args>
  static constexpr void make(Member& member, Args&&... args) {
    std::construct_at(std::addressof(member), std::forward<Args>(args)...);
  }
  // Puts the error back if making the value throws.
  struct Kept {
    Result& of;
    Error error;
    constexpr ~Kept() {
      if (!of.has_) make(of.error_, std::move(error));
    }
  };
  template <class Other>
  constexpr Result& assign(Other&& other) {
    if (has_ && other.has_) {
      value_ = std::forward<Other>(other).value_;
    } else if (has_) {
      Error error = std::forward<Other>(other).error_;
      std::destroy_at(std::addressof(value_));
      make(error_, std::move(error));
      has_ = false;
    } else if (other.has_) {
      const Kept kept{*this, std::move(error_)};
      std::destroy_at(std::addressof(error_));
      make(value_, std::forward<Other>(other).value_);
      has_ = true;
    } else {
      error_ = std::forward<Other>(other).error_;
    }
    return *this;
  }

  union {
    Value value_;
    Error error_;
  };
  bool has_;
};

static_assert(std::is_nothrow_move_constructible_v<Result<int>> &&
              !std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);

}  // namespace HEADRACE_API headrace
