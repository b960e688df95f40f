// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/request_cutting.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace headrace::storage {
namespace {

FileSpan any_span() {
  FileSpan span;
  span.write = *rc::gen::arbitrary<bool>();
  span.begin = *rc::gen::inRange<std::uint64_t>(0, 3 << 20);
  const bool small = *rc::gen::arbitrary<bool>();
  span.end = span.begin + *rc::gen::inRange<std::uint64_t>(1, small ? 9000 : 3 << 20);
  span.address = *rc::gen::inRange<std::uintptr_t>(1 << 20, 2 << 20);
  // In half of the cases memory and file are aligned to each other.
  if (*rc::gen::arbitrary<bool>()) span.address += (span.begin - span.address) % 4096;
  if (*rc::gen::arbitrary<bool>()) span.address += *rc::gen::element(16U, 512U, 1024U);
  if (*rc::gen::element(0, 1, 2, 3) != 0) {
    span.direct = DirectAlignment{.memory = *rc::gen::element(4U, 512U, 4096U),
                                  .offset = *rc::gen::element(512U, 4096U, 16384U)};
  }
  span.memory_page = *rc::gen::element<std::uint64_t>(1, 4096);
  span.request_bytes = *rc::gen::element<std::uint64_t>(512, 100'000, 64 << 10, 1 << 20);
  return span;
}

void check_direct(const FileSpan& span, const Step& step) {
  RC_ASSERT(step.offset % span.direct->offset == 0U);
  RC_ASSERT(step.bytes % span.direct->offset == 0U);
  if (step.bounce) return;
  RC_ASSERT(span.address_of(step.offset) % span.direct->memory == 0U);
  // A core writes to bounced parts, and to other bytes of the same page. After a fork() on a kernel
  // before 6.5 this copies the page, and later writes of the device are lost.
  if (span.write) return;
  RC_ASSERT(span.address_of(step.offset) % span.memory_page == 0U);
  RC_ASSERT(step.bytes % span.memory_page == 0U);
}

// The steps cover the span without overlap and keep the alignment of the device. A write touches
// nothing outside, and no page both in the cache and on the device.
void check_steps(const FileSpan& span) {
  const std::uint64_t least =
      span.direct ? std::max<std::uint64_t>({span.page, span.direct->offset, span.direct->memory})
                  : 0;
  const std::uint64_t most = std::max(span.request_bytes, least);
  std::set<std::uint64_t> direct_pages;
  std::set<std::uint64_t> cached_pages;
  for (std::uint64_t next = span.begin; next < span.end;) {
    const Step step = next_step(span, next);
    RC_ASSERT(step.from == next && step.to > next && step.to <= span.end);
    RC_ASSERT(step.offset <= step.from && step.offset + step.bytes >= step.to);
    if (!step.bounce) {
      RC_ASSERT(step.offset == step.from && step.offset + step.bytes == step.to);
    }
    const bool is_edge = span.write && !step.direct;
    RC_ASSERT(step.bytes <= (step.bounce ? kBounceBytes : is_edge ? 2 * most : most));
    if (step.direct) check_direct(span, step);
    if (span.write) {
      RC_ASSERT(step.offset >= span.begin && step.offset + step.bytes <= span.end);
      auto& pages = step.direct ? direct_pages : cached_pages;
      for (auto p = step.offset / span.page; p <= (step.to - 1) / span.page; ++p) pages.insert(p);
    }
    next = step.to;
  }
  for (const std::uint64_t page : cached_pages) RC_ASSERT(!direct_pages.contains(page));
}

TEST(RequestCutting, StepsKeepTheRulesOfTheDevice) {
  EXPECT_TRUE(rc::check([] {
    for (int i = 0; i < 8; ++i) check_steps(any_span());
  }));
}

TEST(RequestCutting, MemoryThatIsOffByBlocks_IsBouncedUpToThePageOnly) {
  FileSpan span{.begin = 0,
                .end = 1 << 20,
                .address = (7 << 20) + 512,
                .direct = DirectAlignment{.memory = 4, .offset = 512}};
  EXPECT_TRUE(next_step(span, 0).bounce);
  EXPECT_EQ(next_step(span, 0).to, 4096U - 512U);
  EXPECT_FALSE(next_step(span, 4096 - 512).bounce);
  span.memory_page = 1;
  EXPECT_FALSE(next_step(span, 0).bounce);
  span.address += 4;  // less than a block: whole pages and whole blocks never meet
  EXPECT_FALSE(next_step(span, 0).bounce);
  span.memory_page = 4096;
  EXPECT_TRUE(next_step(span, 512 << 10).bounce);
}

TEST(RequestCutting, ARequestBelowABlock_IsOneBlock) {
  FileSpan span{.begin = 0,
                .end = 1 << 20,
                .address = 7 << 20,
                .direct = DirectAlignment{.memory = 512, .offset = 16384},
                .request_bytes = 512};
  EXPECT_EQ(next_step(span, 0).bytes, 16384U);
  span.write = true;
  EXPECT_EQ(next_step(span, 0).bytes, 16384U);
}

TEST(RequestCutting, AlignedPiecesGoStraight) {
  const FileSpan span{.begin = 1 << 20,
                      .end = 3 << 20,
                      .address = 7 << 20,
                      .direct = DirectAlignment{.memory = 512, .offset = 512}};
  const Step expected{.offset = 1 << 20,
                      .bytes = 512 << 10,
                      .from = 1 << 20,
                      .to = (1 << 20) + (512 << 10),
                      .direct = true};
  EXPECT_EQ(next_step(span, 1 << 20), expected);
}

TEST(RequestCutting, SmallOddReadsAreOneRequest) {
  const FileSpan span{.begin = 1000,
                      .end = 9000,
                      .address = 4096 + 1000,
                      .direct = DirectAlignment{.memory = 512, .offset = 512}};
  const Step expected{
      .offset = 512, .bytes = 8704, .from = 1000, .to = 9000, .direct = true, .bounce = true};
  EXPECT_EQ(next_step(span, 1000), expected);
}

}  // namespace
}  // namespace headrace::storage
