// SPDX-License-Identifier: Apache-2.0
#include "tier/page/work_guard.h"

#include <algorithm>

namespace headrace {

void WorkGuard::begin(Since now) {
  since_ = now;
  calls_ = 0;
}

WorkGuard::Verdict WorkGuard::hear(std::uint64_t work, Nanoseconds now) {
  if (share_ <= 0) return Verdict::move;
  const Since heard{work, now};
  if (!since_ || work < last_.work || now < last_.time) {
    *this = WorkGuard(share_);
    begin(heard);
    last_ = heard;
    return Verdict::rest;
  }
  last_ = heard;
  ++calls_;
  const Nanoseconds span = now - since_->time;
  if (calls_ < kSpan || span.count() == 0) return resting_ ? Verdict::rest : Verdict::move;
  lately_ = static_cast<double>(work - since_->work) / seconds(span);
  begin(heard);
  return resting_ ? rested() : moved();
}

WorkGuard::Verdict WorkGuard::moved() {
  ++moving_;
  if (lately_ < at_rest_ * (1 - share_)) {
    fell_ = true;
    fell_to_ = lately_;
    resting_ = true;
    left_ = 2;  // the first span includes the undoing
    return Verdict::undo;
  }
  if (moving_ < kLongest) return Verdict::move;
  length_ = 0;
  resting_ = true;
  left_ = 1;
  return Verdict::rest;
}

WorkGuard::Verdict WorkGuard::rested() {
  at_rest_ = lately_;
  if (--left_ > 0) return Verdict::rest;
  if (fell_) {
    fell_ = false;
    const bool helped = fell_to_ < at_rest_ * (1 - share_);
    length_ = helped ? std::min(std::max(4u, 4 * length_), kLongest) : 0;
    left_ = length_;
    if (helped) return Verdict::rest;
  }
  resting_ = false;
  moving_ = 0;
  return Verdict::move;
}

}  // namespace headrace
