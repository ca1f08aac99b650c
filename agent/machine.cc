#include "machine.h"

#include <gnu/libc-version.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "failure.h"
#include "files.h"

namespace agent {

const char* OwnElfMachine() { return AGENT_ELF_NAME; }

std::string GlibcVersion() { return gnu_get_libc_version(); }

bool VersionIsAtLeast(const std::string& have, const std::string& needed) {
  std::istringstream left(have);
  std::istringstream right(needed);
  std::string part;
  while (std::getline(right, part, '.')) {
    const long wanted = std::strtol(part.c_str(), nullptr, 10);
    const long found = std::getline(left, part, '.') ? std::strtol(part.c_str(), nullptr, 10) : 0;
    if (found != wanted) return found > wanted;
  }
  return true;
}

int Processors() {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) return CPU_COUNT(&usable);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more than a cpu_set_t holds
  return online > 0 ? static_cast<int>(online) : 1;
}

int ChooseThreads(int asked, int packaged) {
  const int processors = Processors();
  if (asked > processors) {
    throw Failure(Code::kInput, std::to_string(asked) + " threads were asked for",
                  "there are " + std::to_string(processors) + " processors");
  }
  return asked > 0 ? asked : std::min(packaged, processors);
}

double NowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double MillisecondsSinceStart() {
  // Field 22 of /proc/self/stat, in ticks since boot; the second field is a name that may hold anything, in brackets.
  const std::string stat = ReadSystemFile("/proc/self/stat");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double started = std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started) * 1e3;
}

Json Temperature() {
  Json hottest;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/thermal", error)) {
    const std::string text = ReadSystemFile(entry.path() / "temp");  // thousandths; only zones have it
    if (text.empty()) continue;
    const double degrees = std::strtod(text.c_str(), nullptr) / 1000;
    if (hottest.is_null() || degrees > hottest.number()) hottest = Json(degrees);
  }
  return hottest;
}

}  // namespace agent
