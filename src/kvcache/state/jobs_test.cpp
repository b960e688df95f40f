// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/jobs.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::kvcache {
namespace {

struct Named final : Job {
  Named(char with_name, Turn with_turn, std::string& into)
      : name(with_name), its_turn(with_turn), done(into) {}
  void run() noexcept override { done += name; }
  Turn turn() const override { return its_turn; }
  char name;
  Turn its_turn;
  std::string& done;
};

TEST(KvJobs, RunByTurnThenInOrderOfArrival) {
  JobQueue jobs;
  std::string done;
  Named other('o', Turn::other, done);
  Named first('a', Turn::load, done);
  Named second('b', Turn::load, done);
  Named demand('d', Turn::demand, done);
  for (Named* const job : {&other, &first, &second, &demand}) jobs.enqueue(*job);
  while (jobs.run_one()) {
  }
  EXPECT_EQ(done, "dabo");
}

TEST(KvJobs, HastenedJobPassesOthers) {
  JobQueue jobs;
  std::string done;
  Named first('a', Turn::load, done);
  Named second('b', Turn::load, done);
  jobs.enqueue(first);
  jobs.enqueue(second);
  jobs.hasten(second);
  while (jobs.run_one()) {
  }
  EXPECT_EQ(done, "ba");
  jobs.hasten(first);  // not queued
  EXPECT_FALSE(jobs.run_one());
}

TEST(KvJobs, WorkerEndsAfterItsJobs) {
  JobQueue jobs;
  std::string done;
  std::vector<Named> all(10, Named('x', Turn::other, done));
  ASSERT_TRUE(jobs.start(1, [] { return Nanoseconds::max(); }).has_value());
  for (Named& job : all) jobs.enqueue(job);
  EXPECT_FALSE(jobs.of_worker());
  jobs.stop();
  EXPECT_EQ(done, std::string(10, 'x'));
}

}  // namespace
}  // namespace headrace::kvcache
