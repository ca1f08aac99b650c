#include "event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <cstdio>

namespace agent {
namespace {

// UTC, as RFC 3339 has it, with milliseconds.
std::string Now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char date[32];
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(now.tv_nsec / 1'000'000));
  return text;
}

}  // namespace

EventLog::EventLog(std::string path, uint64_t most) : path_(std::move(path)), most_(most) { Open(); }

void EventLog::Write(const char* name, const Json& about) {
  Json event = Json::NewObject({{"time", Now()}, {"event", name}});
  for (const Json::Member& member : about.object()) event.Set(member.name, member.value);
  const std::string line = event.Dump() + "\n";
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    if (!path_.empty() && size_ > 0 && size_ + line.size() > most_) Rotate();
    WriteAll(output_.get(), line.data(), line.size(), "the log");
    size_ += line.size();
  } catch (const Failure& failure) {
    if (!has_failed_) std::fprintf(stderr, "agent: %s\n", failure.what());
    has_failed_ = true;
  }
}

void EventLog::Open() {
  output_ = Descriptor(open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat status{};
  const bool opened = output_ && fstat(output_.get(), &status) == 0;
  if (!opened || !S_ISREG(status.st_mode)) {
    throw Failure(Code::kOutput, "cannot write the log " + path_, opened ? "it is not a regular file" : SystemError());
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

void EventLog::Rotate() {
  if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) {
    throw Failure(Code::kOutput, "cannot rename the log " + path_, SystemError());
  }
  Open();
}

}  // namespace agent
