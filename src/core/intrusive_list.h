// SPDX-License-Identifier: Apache-2.0
// A doubly linked list through two fields of its items. It owns and allocates nothing, and removes
// an item without a search. An item is in at most one list by the same fields. Single-thread.
#pragma once

namespace headrace {

// Example: IntrusiveList<Segment, &Segment::next, &Segment::previous>. The fields are null while an
// item is in no list.
template <class T, T* T::* kNext, T* T::* kPrevious>
class IntrusiveList {
 public:
  bool empty() const { return front_ == nullptr; }
  T* front() const { return front_; }  // null: empty
  T* back() const { return back_; }
  static T* next(const T& item) { return item.*kNext; }
  static T* previous(const T& item) { return item.*kPrevious; }

  // Requires: `item` is in no list by these fields.
  void push_front(T& item) {
    item.*kNext = front_;
    (front_ == nullptr ? back_ : front_->*kPrevious) = &item;
    front_ = &item;
  }
  void push_back(T& item) {
    item.*kPrevious = back_;
    (back_ == nullptr ? front_ : back_->*kNext) = &item;
    back_ = &item;
  }
  // Requires: `at` is in this list, `item` in none.
  void insert_before(T& at, T& item) {
    if (at.*kPrevious == nullptr) return push_front(item);
    item.*kNext = &at;
    item.*kPrevious = at.*kPrevious;
    at.*kPrevious->*kNext = &item;
    at.*kPrevious = &item;
  }
  // Requires: `item` is in this list.
  void remove(T& item) {
    (item.*kPrevious == nullptr ? front_ : item.*kPrevious->*kNext) = item.*kNext;
    (item.*kNext == nullptr ? back_ : item.*kNext->*kPrevious) = item.*kPrevious;
    item.*kNext = item.*kPrevious = nullptr;
  }

 private:
  T* front_ = nullptr;
  T* back_ = nullptr;
};

}  // namespace headrace
