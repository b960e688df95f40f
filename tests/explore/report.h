// SPDX-License-Identifier: Apache-2.0
// Prints a schedule that failed: why, where each thread is, its last operations with their lines,
// and the command that repeats it. For the thread that has the turn, outside its schedule.
#pragma once

#include <string>

namespace headrace::explore {

class Schedule;

// The command that repeats the schedules from now on, printed by report().
void set_replay(std::string command);
void report(const Schedule& schedule, const std::string& why);
// A crash or a failed CHECK in a schedule is reported, too.
void watch_signals();

}  // namespace headrace::explore
